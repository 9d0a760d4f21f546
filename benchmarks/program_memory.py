"""Measure how much memory a process keeps for each new shape of a net's inputs.

    python benchmarks/program_memory.py --shapes 300

Each way to run a net is a process of its own. The net is small (two InnerProducts and a loss), and each pass has one
row more than the one before. The figures are resident memory, in MB for each shape, in steps of 50 shapes.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

import caffejax

NET = """
layer { name: "d" type: "Input" top: "x" top: "label" input_param { shape { dim: 4 dim: 8 } shape { dim: 4 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 6 } }
layer { name: "r" type: "ReLU" bottom: "ip" top: "ip" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip" top: "ip2" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""


def _batch(rows: int) -> dict[str, np.ndarray]:
    return {"x": np.ones((rows, 8), np.float32), "label": np.zeros(rows, np.float32)}


def _make_pass(way: str) -> Callable[[int], object]:
    """Return a function that runs a pass with the given number of rows."""
    net = caffejax.Net(NET, "TRAIN")
    variables = net.init(jax.random.key(0))
    if way == "forward":
        return lambda rows: net.forward(*variables, _batch(rows))
    if way == "apply":
        return lambda rows: net.apply(*variables, _batch(rows))
    if way == "gradients":
        compute = net.jit(jax.value_and_grad(net.loss, has_aux=True))
        return lambda rows: compute(*variables, _batch(rows))
    if way == "step":
        return _make_solver_step()
    frozen = net.for_inference(["ip2"]).freeze(variables)
    return lambda rows: frozen({"x": _batch(rows)["x"]})


def _make_solver_step() -> Callable[[int], object]:
    """Return a function that makes a step of a solver of pycaffe with the given number of rows."""
    import caffejax.pycaffe as caffe

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "solver.prototxt"
        path.write_text(f"net_param {{ {NET} }} base_lr: 0.01 lr_policy: 'fixed'")
        solver = caffe.SGDSolver(str(path))

    def step(rows: int) -> None:
        for name, array in _batch(rows).items():
            solver.net.blobs[name].reshape(*array.shape)
            solver.net.blobs[name].data[...] = array
        solver.step(1)

    return step


def _resident_megabytes() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _measure(way: str, num_shapes: int) -> None:
    run_pass = _make_pass(way)
    run_pass(2)
    last, figures = _resident_megabytes(), []
    for i in range(1, num_shapes + 1):
        run_pass(2 + i)
        if i % 50 == 0:
            now = _resident_megabytes()
            figures.append(f"{(now - last) / 50:.2f}")
            last = now
    print(f"{way}: {' '.join(figures)} MB for each shape, {last:.0f} MB at the end", flush=True)


def main() -> None:
    """Measure each way in a process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=300, help="number of shapes (default: %(default)s)")
    parser.add_argument("--ways", default="forward,apply,gradients,freeze,step", help="default: %(default)s")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for way in options.ways.split(","):
        process = context.Process(target=_measure, args=(way, options.shapes))
        process.start()
        process.join()


if __name__ == "__main__":
    main()
