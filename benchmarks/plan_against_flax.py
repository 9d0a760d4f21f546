"""Training steps of the nets of configs/ against the same nets written by hand in flax, by the accelerators' compilers.

    python benchmarks/plan_against_flax.py [--nets lenet,resnet50] [--targets tpu:v5e:2x2] [--sides caffejax]

Both are compiled for devices that need not be there; `pip install ".[plan-tpu,plan-cuda]"` first. Printed are ratios,
caffejax to flax, of what each device does: bytes accessed by the compiler's own estimate (TPUs only) and traffic of the
device's memory as `caffejax plan` counts it, temporary memory, collectives, fusions, seconds to compile, and processor
seconds to trace and compile, which other load on the machine changes less, with caffejax's own figures behind them.
Matrix products of float32 are of full precision on both sides. A compilation that
takes longer than `--limit` seconds is given up. Figures are added to the file of `--results`, a line for each side, and
not computed again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from caffejax import compile_for_absent_devices

compile_for_absent_devices()  # before jax is imported

from training_competitor import CONFIGS  # noqa: E402

BATCHES = {"lenet": 64, "cifar10_full": 100}  # examples a device; 32 of the others
NETS = ["resnet50", "mobilenet", "googlenet", "squeezenet", "caffenet", "cifar10_full", "lenet", "lstm"]
SIDES = ["caffejax", "flax"]
TITLES = {
    "accessed": "bytes accessed",
    "traffic": "memory traffic",
    "temporary": "temporary memory",
    "collectives": "collectives",
    "fusions": "fusions",
    "compile": "seconds to compile",
    "busy": "processor seconds",
}


def plan_caffejax(name: str, target: str, precision: Any, batch: int) -> dict[str, Any]:
    from caffejax import Net, plan
    from caffejax.tools.planning import parse_target

    net = Net(CONFIGS / name / "train_val.prototxt", "TRAIN", precision=precision, sync_bn=True)  # as flax's BatchNorm
    start_cpu_time = time.process_time()
    result = plan(net, parse_target(target), batch=batch, batch_axis=1 if name == "lstm" else 0)
    return collect_figures(result.program, result.compile_seconds, time.process_time() - start_cpu_time)


def plan_flax(name: str, target: str, precision: str, batch: int) -> dict[str, Any]:
    import flax_nets
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from caffejax.tools.planning import get_compiled_stats, parse_target
    from caffejax.tools.planning.hardware import get_devices

    parsed_target = parse_target(target)
    mesh, batch = Mesh(np.array(get_devices(parsed_target)), ("data",)), batch * parsed_target.devices
    net = flax_nets.NETS[name](jnp.bfloat16 if precision == "bfloat16" else jnp.float32)
    init, step = flax_nets.make_training_step(net)
    data_sharding, replicated = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))
    images = jax.ShapeDtypeStruct((batch, *net.size), jnp.float32, sharding=data_sharding)
    labels = (batch, net.size[0]) if name == "lstm" else (batch,)
    start_cpu_time = time.process_time()
    with jax.default_matmul_precision("float32"):
        state = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=replicated),
            jax.eval_shape(init, jax.random.key(0), images),
        )
        arguments = state, images, jax.ShapeDtypeStruct(labels, jnp.int32, sharding=data_sharding)
        lowered = jax.jit(step, donate_argnums=0).lower(*arguments)
    start_time = time.perf_counter()
    compiled = lowered.compile()
    return collect_figures(
        get_compiled_stats(compiled), time.perf_counter() - start_time, time.process_time() - start_cpu_time
    )


def collect_figures(program: Any, seconds: float, cpu_seconds: float) -> dict[str, Any]:
    return {
        "accessed": program.bytes_accessed,
        "traffic": program.traffic,
        "temporary": program.temp_bytes,
        "collectives": program.num_collectives,
        "fusions": program.num_fusions,
        "compile": round(seconds, 1),
        "busy": round(cpu_seconds, 1),
    }


def plan_in_process(side: str, case: tuple[str, str, str], limit: float, results: Path) -> dict[str, Any] | None:
    """Return the figures of a side, from the file of results or by a process that adds them to it; None if it fails."""
    key = [side, *case]
    lines = map(json.loads, results.read_text().splitlines()) if results.exists() else ()
    if figures := next((line["figures"] for line in lines if line["case"] == key), None):
        return dict(figures)
    command = [sys.executable, __file__, "--side", side, *case]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=True)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        error_text = str(error.stderr or error)[-300:]
        print(f"  {side} {case}: {type(error).__name__} {error_text if 'Called' in type(error).__name__ else ''}")
        return None
    result: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    with results.open("a") as file:
        file.write(json.dumps({"case": key, "figures": result}) + "\n")
    return result


def format_row(
    case: tuple[str, str, str], own_figures: dict[str, Any] | None, flax_figures: dict[str, Any] | None
) -> str:
    return "| " + " | ".join((*case, *(format_cell(figure, own_figures, flax_figures) for figure in TITLES))) + " |"


def format_cell(figure: str, own_figures: dict[str, Any] | None, flax_figures: dict[str, Any] | None) -> str:
    if own_figures is None or own_figures[figure] is None:
        return "-"
    own_text = format_value(figure, own_figures[figure])
    return (
        f"{own_figures[figure] / flax_figures[figure]:.2f} ({own_text})"
        if flax_figures and flax_figures[figure]
        else f"- ({own_text})"
    )


def format_value(figure: str, value: float) -> str:
    if figure in ("accessed", "traffic"):
        return f"{value / 1e9:.3g} GB"
    return f"{value / 2**20:.4g} MiB" if figure == "temporary" else f"{value:g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split = lambda text: [s for s in text.split(",") if s]  # noqa: E731
    parser.add_argument("--nets", type=split, default=NETS)
    parser.add_argument("--targets", type=split, default=["tpu:v5e:2x2", "cuda:h100:4"])
    parser.add_argument("--precision", type=split, default=["bfloat16", "float32"])
    parser.add_argument("--limit", type=float, default=1200, help="seconds that a compilation may take")
    parser.add_argument("--jobs", type=int, default=2, help="compilations at a time")
    parser.add_argument("--results", type=Path, default=Path("plan_against_flax.jsonl"))
    parser.add_argument("--sides", type=split, default=SIDES, help="caffejax,flax, or one of them")
    parser.add_argument("--side", nargs=4, metavar=("SIDE", "NET", "TARGET", "PRECISION"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        side, name, target, precision = options.side
        run = plan_caffejax if side == "caffejax" else plan_flax
        print(json.dumps(run(name, target, precision, BATCHES.get(name, 32))))
        return
    print("| net | target | precision | " + " | ".join(TITLES.values()) + " |\n" + "|---" * (3 + len(TITLES)) + "|")
    cases = list(product(options.nets, options.targets, options.precision))
    with ThreadPoolExecutor(options.jobs) as pool:
        futures = {
            case: [pool.submit(plan_in_process, side, case, options.limit, options.results) for side in options.sides]
            for case in cases
        }
        for case, futures_of_case in futures.items():
            results = dict(zip(options.sides, (side.result() for side in futures_of_case), strict=True))
            print(format_row(case, results.get("caffejax"), results.get("flax")), flush=True)


if __name__ == "__main__":
    main()
