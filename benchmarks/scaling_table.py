"""The tables of programs and of scaling in docs/development/accelerators.md: the nets of configs/, by compilers.

    python benchmarks/scaling_table.py [--nets lenet,resnet50] [--targets tpu:v5e:4x4] > tables.md

Each net is compiled by `caffejax plan` for devices that need not be there, one after the other, in bfloat16;
`pip install ".[plan-tpu,plan-cuda]"` first. What was found is added to the file of `--results`, a line for each, and
not computed again: delete it to start again. A compilation that takes longer than `--limit` seconds is given up.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

CONFIGS = Path(__file__).parents[1] / "configs"
NETS = {
    "resnet50": "ResNet-50",
    "resnet101": "ResNet-101",
    "resnet152": "ResNet-152",
    "se_resnet50": "SE-ResNet-50",
    "densenet121": "DenseNet-121",
    "mobilenet": "MobileNet v1",
    "mobilenet_v2": "MobileNet v2",
    "googlenet": "GoogLeNet",
    "squeezenet": "SqueezeNet 1.1",
    "alexnet": "AlexNet",
    "caffenet": "CaffeNet",
    "vgg16": "VGG-16",
    "fcn8s": "FCN-8s",
    "segnet": "SegNet",
    "pspnet50": "PSPNet-50",
    "openpose": "OpenPose",
    "ssd300": "SSD300",
    "mobilenet_ssd": "MobileNet-SSD",
    "face_detector": "face detector",
    "ssd_shapes": "SSD of shapes",
    "faster_rcnn_toy": "Faster R-CNN",
    "cifar10_full": "CIFAR-10 full",
    "lenet": "LeNet",
    "digits": "digits",
    "lstm": "LSTM",
}
TARGETS = ["cuda:h100:8", "tpu:v5e:4x4"]
FILES = {
    "digits": "lenet_solver.prototxt",
    "faster_rcnn_toy": "solver.prototxt",
    "ssd_shapes": "solver.prototxt",  # data: caffejax.cli.demo_pictures.write_databases
}
# examples a device: those of large pictures few, and those that are fed boxes as many as the prototxt says
EXAMPLES_PER_DEVICE = {"lenet": 64, "cifar10_full": 100, "fcn8s": 2, "segnet": 4, "pspnet50": 4, "openpose": 8}
NETS_WITH_OWN_BATCH = ("digits", "face_detector", "faster_rcnn_toy", "mobilenet_ssd", "ssd300", "ssd_shapes")
DEVICES = (8, 64, 512)
PROGRAM_TITLES = ("GiB", "GB of traffic", "collectives (MB)", "ms at least", "s to compile")

Plan = dict[str, Any]


def plan_net(name: str, target: str, limit: float) -> Plan:
    """Return the JSON output of `caffejax plan` for a net, or a reason for its failure as "error"."""
    file = CONFIGS / name / FILES.get(name, "train_val.prototxt")
    batch = [] if name in NETS_WITH_OWN_BATCH else ["--batch", str(EXAMPLES_PER_DEVICE.get(name, 32))]
    axis = ["--batch_axis", "1"] if name == "lstm" else []
    options = [
        "--precision",
        "bfloat16",
        "--reduce_dtype",
        "float32",
        "--scaling",
        ",".join(map(str, DEVICES)),
        "--largest",
        "none",
        "--json",
    ]
    command = [sys.executable, "-m", "caffejax", "plan", str(file), "--target", target, *batch, *axis, *options]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=True)
    except subprocess.TimeoutExpired:
        return {"error": f"not compiled within {limit:g} s"}
    except subprocess.CalledProcessError as error:
        message = (error.stderr.strip() or f"ends with {error.returncode}").splitlines()[-1]
        return {"error": message}
    plan: Plan = json.loads(process.stdout)
    if not plan["fits"]:
        return {"error": f"{plan['batch']} examples take {plan['memory_needed'] / 2**30:.1f} GiB"}
    return plan


def format_program(name: str, plans: dict[str, Plan]) -> str:
    """Return a row of the table of programs; a TPU's traffic is followed by the bytes that its compiler counts."""
    cells = [NETS[name], format_examples(plans)]
    for plan in plans.values():
        if "error" in plan:
            cells += ["*"] + ["-"] * (len(PROGRAM_TITLES) - 1)
            continue
        program = plan["program"]
        accessed = f" ({program['bytes_accessed'] / 1e9:.3g})" if program["bytes_accessed"] else ""
        cells += [
            f"{plan['memory_needed'] / 2**30:.3g}",
            f"{program['traffic'] / 1e9:.3g}{accessed}",
            f"{sum(c['count'] for c in program['collectives'])} ({count_summed_bytes(plan) / 1e6:.3g})",
            f"{1000 * plan['best_seconds']:.3g}",
            f"{plan['compile_seconds']:.0f}",
        ]
    return "| " + " | ".join(cells) + " |"


def format_scaling(name: str, plans: dict[str, Plan]) -> str:
    """Return a row of the table of scaling."""
    summed_bytes = next((f"{count_summed_bytes(f) / 1e6:.3g}" for f in plans.values() if "error" not in f), "-")
    cells = [NETS[name], format_examples(plans), summed_bytes]
    for plan in plans.values():
        cells += format_shares(plan)
    return "| " + " | ".join(cells) + " |"


def format_examples(plans: dict[str, Plan]) -> str:
    return next((str(f["batch"]) for f in plans.values() if "error" not in f), "-")


def count_summed_bytes(plan: Plan) -> int:
    return sum(c["bytes"] * c["count"] for c in plan["program"]["collectives"])


def format_shares(plan: Plan) -> list[str]:
    """Return the cells of a target: the time of a device's own work, and the worst and best efficiency of scaling."""
    if "error" in plan:
        return ["*"] + ["-"] * len(DEVICES)
    seconds = max(plan["seconds"]["arithmetic"], plan["seconds"]["memory"])
    efficiency_texts = {
        s["devices"]: f"{100 * s['worst_efficiency']:.0f} to {100 * s['best_efficiency']:.0f} %"
        for s in plan["scaling"]
    }
    return [f"{1000 * seconds:.3g} ms", *(efficiency_texts[n] for n in DEVICES)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split = lambda text: [s for s in text.split(",") if s]  # noqa: E731
    parser.add_argument("--nets", type=split, default=list(NETS))
    parser.add_argument("--targets", type=split, default=TARGETS)
    parser.add_argument("--limit", type=float, default=900, help="seconds that a compilation may take")
    parser.add_argument("--results", type=Path, default=Path("scaling_table.jsonl"))
    options = parser.parse_args()
    plans: dict[tuple[str, str], Plan] = {}
    if options.results.exists():
        plans = {(r["net"], r["on"]): r for r in map(json.loads, options.results.read_text().splitlines())}
    for target in options.targets:
        for name in options.nets:
            if (name, target) in plans:
                continue
            print(f"{name} for {target}", file=sys.stderr, flush=True)
            plans[name, target] = plan_net(name, target, options.limit)
            with options.results.open("a") as file:
                file.write(json.dumps({"net": name, "on": target, **plans[name, target]}) + "\n")
    rows = {
        name: {t: plans.get((name, t), {"error": "not compiled yet"}) for t in options.targets}
        for name in NETS
        if any((name, t) in plans for t in options.targets)
    }
    scaling_titles = [f"own part | on {DEVICES[0]}", *map(str, DEVICES[1:])]
    for first, titles, format_row in (
        ("net | examples", PROGRAM_TITLES, format_program),
        ("net | examples | MB added up", scaling_titles, format_scaling),
    ):
        columns = " | ".join([first, *(f"{t}: {' | '.join(titles)}" for t in options.targets)])
        print(f"| {columns} |\n{'|---' * (columns.count('|') + 1)}|")
        print("\n".join(format_row(*row) for row in rows.items()) + "\n")
    for name, plans_of_net in rows.items():
        for target, plan in plans_of_net.items():
            if "error" in plan:
                print(f"* {NETS[name]} on {target}: {plan['error']}")


if __name__ == "__main__":
    main()
