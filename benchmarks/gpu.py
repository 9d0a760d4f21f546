"""Compare training on an accelerator: caffejax, PyTorch and flax on the same nets, and LeNet with data on the device.

    python benchmarks/gpu.py [--nets resnet50] [--batches 32,128,512] [--precision bfloat16,tf32] [--kernels fast]

Images per second of whole training steps (forward, backward, SGD with momentum), the batch lying on the device, the
share of the device's peak (2 operations for each multiply-add of the forward pass, three times for a step), the seconds
until the first round is done, compilation included, and the memory of a step. PyTorch runs channels_last, under
autocast for bfloat16, through torch.compile; flax the nets of `flax_nets.py`, which has no tf32 of its own: it gets
JAX's. Each library is a process of its own; all three run once per round, in turn, and figures are medians over rounds
of `--steps` steps. With `--jobs N`, all nets of a precision and batch are compiled before they are measured, N at once:
the whole table takes less time, and the seconds of the first round compare libraries no longer. With `--scan` the
steps of a round are one call (`lax.scan`) of caffejax and of flax, for nets whose steps wait for the processor that
starts them; PyTorch is left out.
Then LeNet's 10,000 iterations at batch 64, many steps to a call (`lax.scan`). It runs on a CPU too, to try it.
With `--json` each row is also written to a file, beside the rows that earlier runs wrote there under the same
conditions: as `results/gpu.json` it is the table of docs/benchmarks.md.
The exit code is 1 if a training did not run.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several processes share the device

import flax_nets
import jax
import jax.numpy as jnp
import numpy as np
from competitor_client import Competitor, median_ratio, time_in_turns
from competitor_server import Run, serve
from training_competitor import CONFIGS, draw_inputs, draw_variables, make_training_step

from caffejax import Net, report_memory, tune_process
from caffejax.core.solver.train_step import TrainState
from caffejax.tools.planning.hardware import CHIPS
from caffejax.tools.planning.hlo import get_compiled_stats

# chips that devices of such kinds are; their data sheets are in caffejax.tools.planning
CHIP_NAMES = {
    "H100": "cuda:h100",
    "H200": "cuda:h200",
    "A100": "cuda:a100",
    "B200": "cuda:b200",
    "TPU v5 lite": "tpu:v5e",
}
LENET_BATCH, LENET_ROWS = 64, 60_000
LIBRARIES = ("caffejax", "PyTorch", "flax")


@dataclass(frozen=True)
class Trainer:
    """A library's training of a net: runs a round of steps and returns a loss, and measures the device memory."""

    run: Run
    memory_bytes: Callable[[], int | None]


@dataclass(frozen=True)
class Case:
    """A row of the table: a net, trained by each library."""

    net: str
    batch: int
    precision: str
    kernels: str


def train_net(case: Case) -> Net:
    precision: Any = case.precision
    kernels: Any = case.kernels
    return Net(CONFIGS / case.net / "train_val.prototxt", "TRAIN", precision=precision, kernels=kernels)


def join_steps(step: Callable[..., Any], steps: int, in_scan: bool) -> tuple[int, Callable[..., Any]]:
    """Return the number of calls of a round, and the function to call: the step, or all steps of a round in a scan.

    The step takes the state and other arguments, and returns the new state and the loss.
    """
    if not in_scan:
        return steps, step

    def scan_steps(state: Any, *arguments: Any) -> Any:
        state, losses = jax.lax.scan(lambda state, _: step(state, *arguments), state, None, steps)
        return state, losses[-1]

    return 1, scan_steps


def build_caffejax(case: Case, steps: int, in_scan: bool) -> Trainer:
    net = train_net(case)
    state, step = make_training_step(net, draw_variables(net))
    arrays = draw_inputs(net, case.batch)
    batches = {name: jax.device_put(arrays[name])[None] for name in net.input_names}
    rate = jnp.float32(0.001)  # on the device; a Python number would be copied to it in each step

    def step_with_loss(*arguments: Any) -> tuple[TrainState, jax.Array]:
        state, step_result = step(*arguments)
        return state, step_result.loss

    calls, function = join_steps(step_with_loss, steps, in_scan)
    compiled = net.jit(function, donate_argnums=0).lower(state, batches, rate).compile()

    def run() -> Any:
        nonlocal state
        for _ in range(calls):
            state, loss = compiled(state, batches, rate)
        return jax.block_until_ready((loss, state.params))[0]

    return Trainer(run, lambda: get_compiled_stats(compiled).memory)


def build_torch(case: Case, steps: int, in_scan: bool) -> Trainer:
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    import torch
    from torch_net import TorchNet, trace_net

    net = train_net(case)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("highest" if case.precision == "float32" else "high")
    torch.backends.cudnn.allow_tf32 = case.precision != "float32"
    torch.backends.cudnn.benchmark = True
    module = trace_net(TorchNet(net.graph, draw_variables(net))).to(device, memory_format=torch.channels_last)
    arrays = draw_inputs(net, case.batch)
    inputs = {
        "data": torch.from_numpy(arrays["data"]).to(device, memory_format=torch.channels_last),
        "label": torch.from_numpy(arrays["label"]).long().to(device),
    }
    compiled_module: Any = torch.compile(module, fullgraph=True)
    sgd = torch.optim.SGD(module.parameters(), lr=0.001, momentum=0.9, weight_decay=0.0005, fused=True)

    def run() -> Any:
        for _ in range(steps):
            sgd.zero_grad()
            with torch.autocast(device, torch.bfloat16, enabled=case.precision == "bfloat16"):
                loss = compiled_module(**inputs)
            loss.backward()
            sgd.step()
        return loss.item()  # waits for the device

    if device == "cpu":
        return Trainer(run, lambda: None)
    torch.cuda.reset_peak_memory_stats()
    return Trainer(run, torch.cuda.max_memory_allocated)


def build_flax(case: Case, steps: int, in_scan: bool) -> Trainer:
    module = flax_nets.NETS[case.net](jnp.bfloat16 if case.precision == "bfloat16" else jnp.float32)
    init, step = flax_nets.make_training_step(module)
    random = np.random.default_rng(0)
    images = jnp.asarray(random.normal(size=(case.batch, *module.size)), jnp.float32)
    labels = jnp.arange(case.batch) % 10
    precisions = {"tf32": "tensorfloat32"}
    calls, function = join_steps(step, steps, in_scan)
    with jax.default_matmul_precision(precisions.get(case.precision, "float32")):
        state = jax.jit(init)(jax.random.key(0), images)
        compiled = jax.jit(function, donate_argnums=0).lower(state, images, labels).compile()

    def run() -> Any:
        nonlocal state
        for _ in range(calls):
            state, loss = compiled(state, images, labels)
        return jax.block_until_ready((loss, state))[0]

    return Trainer(run, lambda: get_compiled_stats(compiled).memory)


def build_lenet_training(case: Case, iterations: int, in_scan: bool) -> Trainer:
    """Return LeNet's training with the data on the device, all steps in one call."""
    net = train_net(case)
    batches = min(LENET_ROWS // LENET_BATCH, iterations)
    random = np.random.default_rng(0)
    shape = (batches, LENET_BATCH, *net.graph.blobs["data"].shape[1:])
    data = {
        "data": jnp.asarray(random.random(shape, np.float32)),
        "label": jnp.asarray(random.integers(0, 10, shape[:2]), jnp.float32),
    }
    state, step = make_training_step(net, draw_variables(net))

    def steps(state: TrainState, data: Any) -> tuple[TrainState, jax.Array]:
        def body(state: TrainState, i: jax.Array) -> tuple[TrainState, jax.Array]:
            batch = {name: data[name][i % batches][None] for name in net.input_names}
            state, step_result = step(state, batch, 0.01)
            return state, step_result.loss

        return jax.lax.scan(body, state, jnp.arange(iterations))

    compiled = net.jit(steps, donate_argnums=0).lower(state, data).compile()

    def run() -> Any:
        nonlocal state
        state, losses = compiled(state, data)
        return jax.block_until_ready((losses, state.params))[0][-1]

    return Trainer(run, lambda: get_compiled_stats(compiled).memory)


BUILDERS: dict[str, Callable[[Case, int, bool], Trainer]] = {
    "caffejax": build_caffejax,
    "PyTorch": build_torch,
    "flax": build_flax,
    "LeNet in one call": build_lenet_training,
}


def serve_trainer(library: str, case: Case, options: argparse.Namespace) -> None:
    """Be a competitor: see `competitor_server.serve`."""
    tune_process()
    trainer: Trainer | None = None

    def make_run() -> Run:
        nonlocal trainer
        trainer = BUILDERS[library](case, options.steps, options.scan)
        return trainer.run

    serve(make_run, read_peak_bytes=lambda: trainer and trainer.memory_bytes())
    if options.profile and trainer:
        title = "-".join([*map(str, astuple(case)), library])
        with jax.profiler.trace(str(options.profile / title), create_perfetto_trace=True):
            trainer.run()


def start_trainer(library: str, case: Case, options: argparse.Namespace) -> Competitor | None:
    """Start a library's process and wait for its first round; if it fails or is too slow, say so and return None."""
    title = f"{case.net}, batch {case.batch}, {case.precision}: {library}"
    steps = options.steps if library in LIBRARIES else options.iterations
    command = [sys.executable, __file__, "--serve", library, "--steps", str(steps)]
    command += ["--nets", case.net, "--batches", str(case.batch)]
    command += ["--precision", case.precision, "--kernels", case.kernels]
    command += ["--profile", str(options.profile)] if options.profile else []
    command += ["--scan"] if options.scan else []
    print(f"  compiling {title}", file=sys.stderr, flush=True)
    try:
        competitor = Competitor(command, max(1, (os.cpu_count() or 1) // options.jobs), patience=options.patience)
        print(f"  {title}: {competitor.first:.1f} s", file=sys.stderr, flush=True)
        return competitor
    except RuntimeError:
        print(f"  does not run here, or not soon enough: {title}", file=sys.stderr, flush=True)
        return None


@contextlib.contextmanager
def start_trainers(
    pairs: Sequence[tuple[Case, str]], options: argparse.Namespace
) -> Iterator[dict[tuple[Case, str], Competitor]]:
    """Start a process for each case and library, `options.jobs` at once."""
    with ThreadPoolExecutor(options.jobs) as pool:
        trainers = list(pool.map(lambda pair: start_trainer(pair[1], pair[0], options), pairs))
    started = {pair: trainer for pair, trainer in zip(pairs, trainers, strict=True) if trainer}
    print(f"  measuring {len(started)} trainings", file=sys.stderr, flush=True)
    try:
        yield started
    finally:
        for trainer in started.values():
            trainer.process.kill()


def peak_tflops(precision: str, override: float | None) -> float | None:
    """Return the device's peak TFLOP/s, or None if it is not in the table and not given."""
    kind = jax.devices()[0].device_kind
    chip = next((CHIPS[chip] for name, chip in CHIP_NAMES.items() if name in kind and "PCIe" not in kind), None)
    return override or (chip and chip.peak(precision) * 1e-12)


def measure(case: Case, trainers: dict[str, Competitor], options: argparse.Namespace) -> dict[str, Any]:
    """Measure a case in the processes of its libraries; return a row, whose values are by the library that ran."""
    times = time_in_turns(trainers, options.rounds, min_runs=1) if trainers else {}
    peak_mib = {library: trainer.end()["peak"] for library, trainer in trainers.items()}
    own_times = times.get("caffejax")
    return {
        "net": case.net,
        "images_per_second": {
            library: case.batch * options.steps / statistics.median(t) * 1000 for library, t in times.items()
        },
        "ratio": {p: median_ratio(times[p], own_times) for p in LIBRARIES[1:] if own_times and p in times},
        "first": {library: trainer.first for library, trainer in trainers.items()},
        "GiB": {library: n / 2**10 for library, n in peak_mib.items() if not math.isnan(n)},
    }


def format_row(case: Case, row: Mapping[str, Any], peak: float | None) -> str:
    """Return a row of the table; `peak` is the device's TFLOP/s, if it is known."""
    operations = 2 * 3 * (report_memory(train_net(case), 1).total["multiply_adds"] or 0) * 1e-12  # of one image
    cells = [f"{row['ratio'][peer]:.2f}" if peer in row["ratio"] else "-" for peer in LIBRARIES[1:]]
    for library in LIBRARIES:
        rate = row["images_per_second"].get(library)
        if rate is None:
            cells += ["-"] * 4
            continue
        memory = f"{row['GiB'][library]:.2f}" if library in row["GiB"] else "-"
        fraction = f"{100 * rate * operations / peak:.1f} %" if peak else "-"
        cells += [f"{rate:.0f}", fraction, f"{row['first'][library]:.1f}", memory]
    return " | ".join([*map(str, astuple(case)), *cells])


def read_rows(file: Path, run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows of a file by net, to which those of a run are added. Only the day may differ from theirs."""
    if not file.exists():
        return {}
    result = json.loads(file.read_text())
    if names := [name for name in run if name != "date" and result["run"].get(name) != run[name]]:
        raise SystemExit(f"{file} has the rows of a run with other {', '.join(names)}; choose another file")
    return {row["net"]: row for row in result["rows"]}


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
    parser.add_argument("--scan", action="store_true", help="compute the steps of a round in one call, without PyTorch")
    parser.add_argument("--jobs", type=int, default=1, help="nets to compile at once; all of them lie on the device")
    parser.add_argument("--patience", type=float, help="seconds after which a first round counts as failed")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, help="steps of a round; 20, on a CPU 1")
    parser.add_argument("--iterations", type=int, help="of LeNet; 10000, on a CPU 100; 0 leaves it out")
    parser.add_argument("--peak-tflops", type=float, help="of the device in this precision, where it is in no table")
    parser.add_argument("--profile", type=Path, metavar="FOLDER", help="write a trace of a round of each library")
    parser.add_argument("--json", type=Path, metavar="FILE", help="add the rows of nets to this file")
    parser.add_argument("--serve", choices=BUILDERS, help=argparse.SUPPRESS)  # be the process of this library
    options = parser.parse_args(arguments)
    choices = [(precision, kernels) for precision in options.precision for kernels in options.kernels]
    if options.serve:
        case = Case(options.nets[0], options.batches[0], *choices[0])
        serve_trainer(options.serve, case, options)
        return
    if options.json and len(options.batches) * len(choices) > 1:
        parser.error("--json takes one batch, one precision and one of the kernels, as its rows are nets")
    is_cpu = jax.default_backend() == "cpu"
    options.steps = options.steps or (1 if is_cpu else 20)
    if options.iterations is None:
        options.iterations = 100 if is_cpu else 10_000
    options.torch &= not options.scan and find_spec("torch") is not None
    kind = jax.devices()[0].device_kind
    versions = {name: metadata.version(name) for name in ("jax", *(["torch"] if options.torch else []))}
    run = {
        "date": str(datetime.date.today()),
        "processor": kind,
        "precision": options.precision[0],
        "batch": options.batches[0],
        "kernels": options.kernels[0],
        "steps_per_call": options.steps if options.scan else 1,
        "rounds": options.rounds,
        "versions": versions,
    }
    rows = read_rows(options.json, run) if options.json else {}
    print(f"{run['date']}, {kind}, {', '.join(map(' '.join, versions.items()))}, {options.rounds} rounds\n")
    titles = [f"{library}: img/s | of peak | first round, s | GiB" for library in LIBRARIES]
    print(f"| net | batch | precision | kernels | to PyTorch | to flax | {' | '.join(titles)} |")
    print("|" + "---|" * (6 + 4 * len(LIBRARIES)), flush=True)
    left_out = {"PyTorch": not options.torch, "flax": not options.flax}
    libraries = [library for library in LIBRARIES if not left_out.get(library)]
    num_missing = 0
    for precision, kernels in choices:
        for batch in options.batches:
            cases = [Case(name, batch, precision, kernels) for name in options.nets]
            for together in [cases] if options.jobs > 1 else [[case] for case in cases]:
                pairs = [(case, library) for case in together for library in libraries]
                with start_trainers(pairs, options) as trainers:
                    num_missing += len(pairs) - len(trainers)
                    for case in together:
                        own_trainers = {library: t for (c, library), t in trainers.items() if c == case}
                        row = measure(case, own_trainers, options)
                        peak = peak_tflops(precision, options.peak_tflops)
                        print(f"| {format_row(case, row, peak)} |", flush=True)
                        if options.json and row["images_per_second"]:
                            rows[case.net] = row
                            options.json.write_text(json.dumps({"run": run, "rows": [*rows.values()]}, indent=1))
    if options.iterations:
        title = f"LeNet, {options.iterations} iterations of {LENET_BATCH}"
        print(f"\n| {title} | kernels | seconds | iterations/s | first run, s |\n|{'---|' * 5}")
        for choice in choices:
            pair = Case("lenet", LENET_BATCH, *choice), "LeNet in one call"
            with start_trainers([pair], options) as trainers:
                num_missing += 1 - len(trainers)
                cells = ["-"] * 3
                if lenet := trainers.get(pair):
                    seconds = statistics.median(lenet.run(1) for _ in range(options.rounds)) / 1000
                    cells = [f"{seconds:.3g}", f"{options.iterations / seconds:.0f}", f"{lenet.first:.1f}"]
            print("| " + " | ".join([*choice, *cells]) + " |", flush=True)
    raise SystemExit(f"{num_missing} trainings did not run" if num_missing else 0)


if __name__ == "__main__":
    main()
