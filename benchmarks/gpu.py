"""Compare training on an accelerator: caffejax, PyTorch and flax on the same nets, and LeNet with data on the device.

    python benchmarks/gpu.py [--nets resnet50] [--batches 32,128,512] [--precision bfloat16,tf32] [--kernels fast]

Images per second of whole training steps (forward, backward, SGD with momentum), the batch lying on the device, the
share of the device's peak (2 operations for each multiply-add of the forward pass, three times for a step), the seconds
until the first round is done, compilation included, and the memory of a step. PyTorch runs channels_last, under
autocast for bfloat16, through torch.compile; flax the nets of `flax_nets.py`, which has no tf32 of its own: it gets
JAX's. Figures are medians over rounds of `--steps` steps.
Then LeNet's 10,000 iterations at batch 64, many steps to a call (`lax.scan`). It runs on a CPU too, to try it.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the peer needs memory too

import flax_nets
import jax
import jax.numpy as jnp
import numpy as np
from training_competitor import CONFIGS, draw_inputs, draw_variables, make_training_step

from caffejax import tune_process
from caffejax.debugging import report_memory
from caffejax.net import Net
from caffejax.planning.hardware import CHIPS
from caffejax.planning.hlo import get_compiled_stats
from caffejax.training.train_step import TrainState

# chips that devices of such kinds are; their data sheets are in caffejax.planning
CHIP_NAMES = {
    "H100": "cuda:h100",
    "H200": "cuda:h200",
    "A100": "cuda:a100",
    "B200": "cuda:b200",
    "TPU v5 lite": "tpu:v5e",
}
LENET_BATCH, LENET_ROWS = 64, 60_000
LIBRARIES = ("caffejax", "PyTorch", "flax")
Run = Callable[[], Any]  # some steps, all of them done when it returns


@dataclass(frozen=True)
class Trainer:
    """A library's training of a net: a function that runs a round of steps, and the device memory of a step."""

    run: Run
    memory_bytes: Callable[[], int | None]


@dataclass(frozen=True)
class Measurement:
    """Seconds until the end of the first round, including compilation; the median of a round; the memory."""

    first_seconds: float
    seconds: float
    memory_bytes: int | None


def train_net(name: str, precision: Any, kernels: Any) -> Net:
    return Net(CONFIGS / name / "train_val.prototxt", "TRAIN", precision=precision, kernels=kernels)


def build_caffejax(net: Net, batch: int, steps: int) -> Trainer:
    state, step = make_training_step(net, draw_variables(net))
    arrays = draw_inputs(net, batch)
    batches = {name: jax.device_put(arrays[name])[None] for name in net.input_names}
    compiled = net.jit(step, donate_argnums=0).lower(state, batches, 0.001).compile()

    def run() -> None:
        nonlocal state
        for _ in range(steps):
            state, step_result = compiled(state, batches, 0.001)
        jax.block_until_ready((state.params, step_result.loss))

    return Trainer(run, lambda: get_compiled_stats(compiled).memory)


def build_torch(net: Net, batch: int, steps: int, precision: str) -> Trainer:
    import torch
    from torch_net import TorchNet, trace_net

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "float32"
    torch.backends.cudnn.benchmark = True
    module = trace_net(TorchNet(net.graph, draw_variables(net))).to(device, memory_format=torch.channels_last)
    arrays = draw_inputs(net, batch)
    inputs = {
        "data": torch.from_numpy(arrays["data"]).to(device, memory_format=torch.channels_last),
        "label": torch.from_numpy(arrays["label"]).long().to(device),
    }
    compiled_module: Any = torch.compile(module, fullgraph=True)
    sgd = torch.optim.SGD(module.parameters(), lr=0.001, momentum=0.9, weight_decay=0.0005, fused=True)

    def run() -> None:
        for _ in range(steps):
            sgd.zero_grad()
            with torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16"):
                loss = compiled_module(**inputs)
            loss.backward()
            sgd.step()
        loss.item()  # waits for the device

    if device == "cpu":
        return Trainer(run, lambda: None)
    torch.cuda.reset_peak_memory_stats()
    return Trainer(run, torch.cuda.max_memory_allocated)


def build_flax(name: str, batch: int, steps: int, precision: str) -> Trainer:
    module = flax_nets.NETS[name](jnp.bfloat16 if precision == "bfloat16" else jnp.float32)
    init, step = flax_nets.make_training_step(module)
    random = np.random.default_rng(0)
    images = jnp.asarray(random.normal(size=(batch, *module.size)), jnp.float32)
    labels = jnp.arange(batch) % 10
    precisions = {"tf32": "tensorfloat32"}
    with jax.default_matmul_precision(precisions.get(precision, "float32")):
        state = jax.jit(init)(jax.random.key(0), images)
        compiled = jax.jit(step, donate_argnums=0).lower(state, images, labels).compile()

    def run() -> None:
        nonlocal state
        for _ in range(steps):
            state, loss = compiled(state, images, labels)
        jax.block_until_ready((state, loss))

    return Trainer(run, lambda: get_compiled_stats(compiled).memory)


def time_run(run: Run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(make: Callable[[], Trainer], rounds: int, trace: Path | None = None) -> Measurement | None:
    """Measure a library's steps, and write a profile of one round; if they fail here, print why and return None."""
    try:
        start = time.perf_counter()
        trainer = make()
        trainer.run()
        first_seconds = time.perf_counter() - start
        seconds = statistics.median(time_run(trainer.run) for _ in range(rounds))
        if trace:
            with jax.profiler.trace(str(trace), create_perfetto_trace=True):
                trainer.run()
        return Measurement(first_seconds, seconds, trainer.memory_bytes())
    except Exception as error:
        print(f"  does not run here: {type(error).__name__}: {str(error).splitlines()[0][:100] if str(error) else ''}")
        return None
    finally:
        gc.collect()
        if torch := sys.modules.get("torch"):
            torch.cuda.empty_cache()


def peak_tflops(precision: str, override: float | None) -> float | None:
    """Return the device's peak TFLOP/s, or None if it is not in the table and not given."""
    kind = jax.devices()[0].device_kind
    chip = next((CHIPS[chip] for name, chip in CHIP_NAMES.items() if name in kind and "PCIe" not in kind), None)
    return override or (chip and chip.peak(precision) * 1e-12)


def compare(name: str, batch: int, precision: str, kernels: str, options: argparse.Namespace) -> str:
    """Measure a net; return a row of the table."""
    net = train_net(name, precision, kernels)
    trainer_makers: dict[str, Callable[[], Trainer]] = {"caffejax": lambda: build_caffejax(net, batch, options.steps)}
    if options.torch:
        trainer_makers["PyTorch"] = lambda: build_torch(net, batch, options.steps, precision)
    if options.flax:
        trainer_makers["flax"] = lambda: build_flax(name, batch, options.steps, precision)
    folder = options.profile and options.profile / f"{name}-{batch}-{precision}-{kernels}"
    measurements: dict[str, Measurement | None] = {}
    for library, make in list(trainer_makers.items())[:: -1 if options.reverse else 1]:
        print(f"  {name}, batch {batch}, {precision}: {library}", file=sys.stderr, flush=True)
        measurements[library] = measure(make, options.rounds, folder and folder / library)
    peak = peak_tflops(precision, options.peak_tflops)
    operations = 2 * 3 * (report_memory(net, 1).total["multiply_adds"] or 0) * 1e-12  # of one image
    cells = []
    rates = dict.fromkeys(LIBRARIES, 0.0)
    for library in LIBRARIES:
        if not (measurement := measurements.get(library)):
            cells += ["-"] * 4
            continue
        rates[library] = batch * options.steps / measurement.seconds
        peak_fraction = f"{100 * rates[library] * operations / peak:.1f} %" if peak else "-"
        memory = f"{measurement.memory_bytes / 2**30:.2f}" if measurement.memory_bytes else "-"
        cells += [f"{rates[library]:.0f}", peak_fraction, f"{measurement.first_seconds:.1f}", memory]
    own_rate, *peer_rates = rates.values()
    ratios = [f"{own_rate / peer_rate:.2f}" if own_rate and peer_rate else "-" for peer_rate in peer_rates]
    return " | ".join([name, str(batch), precision, kernels, *ratios, *cells])


def time_lenet_training(precision: str, kernels: str, iterations: int, rounds: int) -> Measurement | None:
    """Measure LeNet's training with the data on the device, all steps in one call."""
    net = train_net("lenet", precision, kernels)
    batches = min(LENET_ROWS // LENET_BATCH, iterations)
    random = np.random.default_rng(0)
    shape = (batches, LENET_BATCH, *net.graph.blobs["data"].shape[1:])
    data = {
        "data": jnp.asarray(random.random(shape, np.float32)),
        "label": jnp.asarray(random.integers(0, 10, shape[:2]), jnp.float32),
    }

    def make() -> Trainer:
        state, step = make_training_step(net, draw_variables(net))

        def steps(state: TrainState, data: Any) -> tuple[TrainState, jax.Array]:
            def body(state: TrainState, i: jax.Array) -> tuple[TrainState, jax.Array]:
                batch = {name: data[name][i % batches][None] for name in net.input_names}
                state, step_result = step(state, batch, 0.01)
                return state, step_result.loss

            return jax.lax.scan(body, state, jnp.arange(iterations))

        compiled = net.jit(steps, donate_argnums=0).lower(state, data).compile()

        def run() -> None:
            nonlocal state
            state, losses = compiled(state, data)
            jax.block_until_ready((state.params, losses))

        return Trainer(run, lambda: get_compiled_stats(compiled).memory)

    return measure(make, rounds)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split = lambda text: [s for s in text.split(",") if s]  # noqa: E731
    split_numbers = lambda text: [int(s) for s in split(text)]  # noqa: E731
    parser.add_argument("--nets", type=split, default=["resnet50", "caffenet", "googlenet"])
    parser.add_argument("--batches", type=split_numbers, default=[32, 64, 128, 256, 512])
    parser.add_argument("--precision", type=split, default=["bfloat16"], help="float32,tf32,bfloat16")
    parser.add_argument("--kernels", type=split, default=["fast"], help="implementations of ours: fast,reference")
    parser.add_argument("--no-torch", dest="torch", action="store_false", help="leave PyTorch out")
    parser.add_argument("--no-flax", dest="flax", action="store_false", help="leave flax out")
    reverse_help = "flax first and caffejax last: what comes later starts sooner, because XLA's choices are kept"
    parser.add_argument("--reverse", action="store_true", help=reverse_help)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="steps of a round; 20, on a CPU 1")
    parser.add_argument("--iterations", type=int, help="of LeNet; 10000, on a CPU 100; 0 leaves it out")
    parser.add_argument("--peak-tflops", type=float, help="of the device in this precision, where it is in no table")
    parser.add_argument("--profile", type=Path, metavar="FOLDER", help="write a trace of a round of each library")
    options = parser.parse_args(arguments)
    tune_process()
    is_cpu = jax.default_backend() == "cpu"
    options.steps = options.steps or (1 if is_cpu else 20)
    iterations = (100 if is_cpu else 10_000) if options.iterations is None else options.iterations
    kind = jax.devices()[0].device_kind
    versions = [f"{name} {metadata.version(name)}" for name in ("jax", *(["torch"] if options.torch else []))]
    print(f"{datetime.date.today()}, {kind}, {', '.join(versions)}, {options.rounds} rounds\n")
    titles = [f"{library}: img/s | of peak | first round, s | GiB" for library in LIBRARIES]
    print(f"| net | batch | precision | kernels | to PyTorch | to flax | {' | '.join(titles)} |")
    print("|" + "---|" * (6 + 4 * len(LIBRARIES)))
    choices = [(precision, kernels) for precision in options.precision for kernels in options.kernels]
    for name in options.nets:
        for batch in options.batches:
            for precision, kernels in choices:
                print(f"| {compare(name, batch, precision, kernels, options)} |", flush=True)
    if iterations:
        print(
            f"\n| LeNet, {iterations} iterations of {LENET_BATCH} | kernels | seconds | iterations/s | first run, s |"
        )
        print("|" + "---|" * 5)
        for precision, kernels in choices:
            lenet = time_lenet_training(precision, kernels, iterations, options.rounds)
            cells = (
                (f"{lenet.seconds:.3g}", f"{iterations / lenet.seconds:.0f}", f"{lenet.first_seconds:.1f}")
                if lenet
                else ("-",) * 3
            )
            print(f"| {precision} | {kernels} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
