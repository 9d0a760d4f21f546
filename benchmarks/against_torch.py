"""caffejax and PyTorch on the same nets: inference at batch 1 and at the net's batch, and a training step.

    python benchmarks/against_torch.py [--nets lenet,resnet50] [--rounds 9] [--kernels fast,reference]

Every competitor runs once per round, in turn, with the same number of threads; so other load on the machine falls on
all alike. Of PyTorch's forms (eager, channels_last, torch.compile of that) the fastest counts. That the nets are the
same is checked first: the outputs must agree. Prints milliseconds (medians), ratios PyTorch / caffejax (medians over
rounds; more than 1: caffejax is faster), and what compiling took.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch_net import TorchNet, fuse_norms

from caffejax.net import Net, Variables
from caffejax.schema.caffe_pb2 import SolverParameter
from caffejax.solvers.state import TrainState, make_step
from caffejax.solvers.transforms import caffe_optimizer

CONFIGS = Path(__file__).parents[1] / "configs"
BATCHES = {
    "lenet": 64,
    "cifar10_full": 100,
    "caffenet": 32,
    "googlenet": 16,
    "squeezenet": 16,
    "resnet50": 8,
    "mobilenet": 8,
}
TASKS = ("forward 1", "forward", "step")
SOLVER = SolverParameter(type="SGD", base_lr=0.001, lr_policy="fixed", momentum=0.9, weight_decay=0.0005)
Run = Callable[[], Any]


def variables_of(net: Net) -> Variables:
    """From the fillers, with running statistics as if of standard normal data."""
    params, state = net.init(jax.random.key(0))
    return Variables(params, {k: tuple(b if b is None else jnp.ones_like(b) for b in v) for k, v in state.items()})


def random_inputs(net: Net, batch: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shape = net.graph.blobs["data"].shape
    data = random.normal(size=(batch, *shape[1:])).astype(np.float32)
    return {"data": data, "label": np.arange(batch, dtype=np.float32) % 10}


def ours(net: Net, task: str, batch: int) -> Run:
    variables, given = variables_of(net), random_inputs(net, batch)
    inputs = {name: jnp.asarray(given[name]) for name in net.fed}
    if task != "step":
        return lambda: jax.block_until_ready(net.forward(variables.params, variables.state, inputs)[0])
    lr, decay = (
        net.tree(lambda p, n=n: getattr(p, n) if p.blob.learnable else None) for n in ("lr_mult", "decay_mult")
    )
    optimizer = caffe_optimizer(SOLVER, lr, decay)
    state = TrainState(*variables, optimizer.init(variables.params), jnp.int32(0), jax.random.key(1))
    step = net.jit(make_step(net, optimizer, 1), donate_argnums=0)
    batches = {name: array[None] for name, array in inputs.items()}

    def run() -> Any:
        nonlocal state
        state, report = step(state, batches, 0.001)
        return jax.block_until_ready((state.params, report.loss))[1]

    return run


def peer(net: Net, task: str, batch: int, form: str) -> Run:
    module = TorchNet(net.graph, variables_of(net))
    fuse_norms(module)
    given = random_inputs(net, batch)
    inputs = {"data": torch.from_numpy(given["data"]), "label": torch.from_numpy(given["label"]).long()}
    if form != "eager":
        module = module.to(memory_format=torch.channels_last)
        inputs["data"] = inputs["data"].to(memory_format=torch.channels_last)
    call: Any = torch.compile(module) if form == "compiled" else module
    if task != "step":

        def forward() -> Any:
            with torch.inference_mode():
                return call(inputs)

        return forward
    sgd = torch.optim.SGD(module.parameters(), lr=0.001, momentum=0.9, weight_decay=0.0005, fused=True)

    def step() -> Any:
        sgd.zero_grad()
        loss = call(inputs)
        loss.backward()
        sgd.step()
        return loss

    return step


def check_equal(name: str, net: Net) -> None:
    """Raises unless both give the same probabilities, to float32's accuracy."""
    a = next(iter(ours(net, "forward", 2)().values()))
    b = peer(net, "forward", 2, "eager")().numpy()
    np.testing.assert_allclose(np.asarray(a).reshape(b.shape), b, rtol=2e-3, atol=1e-5, err_msg=name)


def timed(run: Run) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1000


def compare(name: str, task: str, options: argparse.Namespace) -> dict[str, Any]:
    """Medians by competitor, compile seconds of ours, and the ratio of each kernels choice."""
    batch = 1 if task == "forward 1" else BATCHES[name]
    phase: Any = "TRAIN" if task == "step" else "TEST"
    path = CONFIGS / name / "train_val.prototxt"
    runs: dict[str, Run] = {}
    compile_seconds = {}
    for kernels in options.kernels:
        runs[kernels] = ours(Net(path, phase, kernels=kernels), task, batch)
        compile_seconds[kernels] = timed(runs[kernels]) / 1000
    for form in options.torch:
        run = peer(Net(path, phase), task, batch, form)
        try:
            run()
        except Exception as error:
            print(f"  torch {form} does not run here: {type(error).__name__}")
            continue
        runs[form] = run
    for run in runs.values():
        run()
    times: dict[str, list[float]] = {key: [] for key in runs}
    for _ in range(options.rounds):
        for key, run in runs.items():
            times[key].append(statistics.median(timed(run) for _ in range(1 if task == "step" else 3)))
    medians = {key: statistics.median(t) for key, t in times.items()}
    forms = [form for form in options.torch if form in runs]
    best = min(forms, key=medians.__getitem__) if forms else None
    ratios = {
        k: statistics.median(b / a for a, b in zip(times[k], times[best], strict=True))
        for k in options.kernels
        if best is not None
    }
    return {"medians": medians, "best": best, "ratios": ratios, "compile": compile_seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split = lambda text: [s for s in text.split(",") if s]  # noqa: E731
    parser.add_argument("--nets", type=split, default=list(BATCHES))
    parser.add_argument("--tasks", type=split, default=list(TASKS))
    parser.add_argument("--kernels", type=split, default=["fast"], help="formulations of ours: fast,reference")
    parser.add_argument("--torch", type=split, default=["eager", "channels_last", "compiled"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(
        f"{datetime.date.today()}, {platform.processor() or platform.machine()}, {options.threads} threads, "
        f"jax {jax.__version__}, torch {torch.__version__}, {options.rounds} rounds\n"
    )
    columns = [*options.kernels, *options.torch]
    print("| net | task | " + " | ".join(columns) + " | " + " | ".join(f"{k}: ratio" for k in options.kernels), end="")
    print(" | compile s |\n|" + "---|" * (3 + len(columns) + len(options.kernels)))
    for name in options.nets:
        if options.torch:
            check_equal(name, Net(CONFIGS / name / "train_val.prototxt", "TEST"))
        for task in options.tasks:
            row = compare(name, task, options)
            cells = [f"{row['medians'][c]:.2f}" if c in row["medians"] else "-" for c in columns]
            cells += [f"{r:.2f}" for r in row["ratios"].values()]
            cells += ["/".join(f"{s:.1f}" for s in row["compile"].values())]
            shown = task if task == "forward 1" else f"{task} {BATCHES[name]}"
            print(f"| {name} | {shown} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
