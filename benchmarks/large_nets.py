"""Measure memory and time of the forward and backward pass of large nets in training, at their published sizes.

    python benchmarks/large_nets.py [--nets segnet,fcn8s]

Each net is a process of its own, batch 1, random numbers; its peak of resident memory counts, compiling included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from competitor_server import read_memory
from training_competitor import CONFIGS, draw_boxes, draw_variables

NETS = (
    "openpose",
    "fcn8s",
    "pspnet50",
    "segnet",
    "resnet152",
    "densenet121",
    "se_resnet50",
    "mobilenet_ssd",
)


def draw_inputs_of_net(net: Any) -> dict[str, np.ndarray]:
    """Draw all inputs of the net; labels are classes, or boxes."""
    rng = np.random.default_rng(0)
    inputs = {}
    for name in net.input_names:
        shape = net.graph.blobs[name].shape
        if name == "label" and shape[-1] == 8 and len(shape) == 4:
            inputs[name] = draw_boxes(rng, 1)
        elif name == "label":
            inputs[name] = rng.integers(0, 10, shape).astype(np.float32)
        else:
            inputs[name] = rng.normal(size=shape).astype(np.float32)
    return inputs


def measure(name: str) -> dict[str, Any]:
    """Measure a net's forward and backward pass in this process."""
    import jax

    from caffejax import Net, tune_process

    tune_process()
    net = Net(CONFIGS / name / "train_val.prototxt", "TRAIN").with_batch(1)
    variables, inputs = draw_variables(net), draw_inputs_of_net(net)
    step = net.jit(jax.value_and_grad(net.loss, has_aux=True))

    def run() -> float:
        start = time.perf_counter()
        (loss, _), grads = jax.block_until_ready(step(*variables, inputs, jax.random.key(0)))
        seconds = time.perf_counter() - start
        assert np.isfinite(loss)
        assert all(np.isfinite(g).all() for g in jax.tree.leaves(grads))
        return seconds

    first_seconds = run()
    seconds = float(np.median([run() for _ in range(3)]))
    return {
        "size": "x".join(map(str, net.graph.blobs[net.input_names[0]].shape[1:])),
        "params": sum(a.size for a in jax.tree.leaves(variables.params)),
        "first": first_seconds,
        "seconds": seconds,
        "peak": read_memory("VmHWM") / 2**30,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", type=lambda text: text.split(","), default=list(NETS))
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(measure(options.alone)))
        return
    print("| net | input | million params | first pass, s | pass, s | peak, GiB |\n|---|---|---|---|---|---|")
    for name in options.nets:
        command = [sys.executable, str(Path(__file__)), "--alone", name]
        result = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        time_cells = f"{result['first']:.0f} | {result['seconds']:.2f} | {result['peak']:.1f}"
        print(f"| {name} | {result['size']} | {result['params'] / 1e6:.1f} | {time_cells} |", flush=True)


if __name__ == "__main__":
    main()
