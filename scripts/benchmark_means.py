"""The table of docs/benchmarks.md that says how fast caffejax is beside others, and the pages that quote its means.

A page quotes a mean as the text of a link to its row, such as `[1.63](docs/benchmarks.md#torch-step)`.
`scripts/make_benchmark_page.py` writes the numbers of these links.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NETS = {
    "lenet": "LeNet",
    "cifar10_full": "CIFAR-10 full",
    "alexnet": "AlexNet",
    "caffenet": "CaffeNet",
    "googlenet": "GoogLeNet",
    "squeezenet": "SqueezeNet 1.1",
    "resnet50": "ResNet-50",
    "resnet152": "ResNet-152",
    "mobilenet": "MobileNet v1",
    "mobilenet_ssd": "MobileNet-SSD",
    "ssd300": "SSD300",
    "openpose": "OpenPose",
    "qrcode": "WeChat's QR detector",
    "fcn8s": "FCN-8s",
    "lstm": "LSTM",
}
TASKS = {"forward 1": "inference, batch 1", "forward": "inference, larger batch", "step": "training step"}
STARTS = {"frozen, cold": "frozen", "pycaffe, cold": "pycaffe", "OpenCV": "OpenCV", "ONNX Runtime": "ONNX Runtime"}
STARTS_COMPARED = {"first": "first result of a fresh process", "resized": "first call at a new input size"}
STARTS_COMPARED |= {"steady": "steady call of a frozen net"}
DETECTORS = ("mobilenet_ssd", "ssd300", "fcn8s")  # and segmentation; engines run them less well
SMALL_NETS = ("lenet", "cifar10_full")  # on a GPU their steps wait for the processor
QUOTE = re.compile(r"\[[\d.]+\]\(((?:[\w./]*/)?benchmarks\.md#([\w-]+))\)")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Comparison:
    """How many times as fast as a peer caffejax is, in each of some nets or runs."""

    name: str  # the anchor of its row
    task: str
    peer: str
    date: str
    machine: str
    ratios: Sequence[float]
    figures: str = ""  # of each net, if no other table has them

    @property
    def mean(self) -> str:
        """The geometric mean, in the two digits that pages quote."""
        return f"{statistics.geometric_mean(self.ratios):.2f}"

    def make_cells(self) -> tuple[str, ...]:
        """Return its row of the table."""
        span = f"{min(self.ratios):.2f} to {max(self.ratios):.2f} ({len(self.ratios)} nets)"
        name = f'<a id="{self.name}"></a>{self.task}'
        return name, self.peer, f"**{self.mean}**", self.figures or span, self.date, self.machine


TITLES = ("of", "times as fast as", "mean", "by net", "day", "machine")


def list_comparisons(results: Mapping[str, Any]) -> list[Comparison]:
    """Return the rows of the table, by the contents of the files in benchmarks/results."""
    comparisons = [
        *compare_with_torch(results["against_torch"]),
        *compare_with_engines(results["against_engines"]),
        *compare_starts(results["cold_start"]),
        *compare_on_gpu(results["gpu"]),
        *map(read_noted, results["noted"]),
    ]
    names = [comparison.name for comparison in comparisons]
    if len(set(names)) < len(names):
        raise ValueError(f"two rows have one name: {', '.join(sorted(names))}")
    return comparisons


def compare_with_torch(result: Row) -> Iterator[Comparison]:
    run = describe_machine(result["run"])
    for task, words in TASKS.items():
        ratios = [row["ratio"]["fast"] for row in result["rows"] if row["task"] == task]
        link = f"[{words}](#training-and-inference-against-pytorch)"
        peer = "PyTorch, the fastest of eager, channels last and `torch.compile`"
        yield Comparison(f"torch-{task.replace(' ', '-')}", link, peer, *run, ratios)


def compare_with_engines(result: Row) -> Iterator[Comparison]:
    run = describe_machine(result["run"])
    measured = [row for row in result["rows"] if row["best"]]
    for name, words, are_detectors, is_batch_1 in (
        ("engines-1", "batch 1", False, True),
        ("engines-batch", "larger batches", False, False),
        ("engines-detectors", "detectors and FCN-8s, batch 1", True, True),
    ):
        ratios = [
            row["ratio"][row["best"]]
            for row in measured
            if (row["batch"] == 1) == is_batch_1 and (row["net"] in DETECTORS) == are_detectors
        ]
        yield Comparison(name, f"[frozen net](#inference-against-engines), {words}", "the best engine", *run, ratios)


def compare_starts(result: Row) -> Iterator[Comparison]:
    run = describe_machine(result["run"])
    medians = [compute_medians(net["runs"], STARTS) for net in result["nets"] if net["net"] in NETS]
    for peer in ("OpenCV", "ONNX Runtime"):
        both = [net for net in medians if peer in net and "frozen" in net]
        for key, task in STARTS_COMPARED.items():
            ratios = [net[peer][key] / net["frozen"][key] for net in both if net[peer].get(key)]
            if ratios:
                name = f"{key}-{peer.partition(' ')[0].lower()}"
                yield Comparison(name, f"[{task}](#ready-at-once)", peer, *run, ratios)


def compare_on_gpu(result: Row) -> Iterator[Comparison]:
    run = result["run"]
    for peer, words in {"PyTorch": "PyTorch, `torch.compile`", "flax": "flax"}.items():
        for suffix, group, are_small in (("", "nets for ImageNet", False), ("-small", "small nets", True)):
            rows = [row for row in result["rows"] if (row["net"] in SMALL_NETS) == are_small]
            task = f"[training step](#training-on-a-gpu) in {run['precision']}, batch {run['batch']}, {group}"
            name = f"gpu-{'torch' if peer == 'PyTorch' else peer}{suffix}"
            if ratios := [row["ratio"][peer] for row in rows if peer in row["ratio"]]:
                yield Comparison(name, task, words, run["date"], run["processor"], ratios)


def read_noted(row: Row) -> Comparison:
    """Return a comparison noted from what a benchmark printed, with its figures."""
    cases = [
        f"{case['case']} {case['value']} {row['unit']} ({case['ratio']})"
        if "value" in case
        else f"{case['case']} {case['ratio']}"
        for case in row["cases"]
    ]
    figures = "; ".join([", ".join(cases), *([row["note"]] if "note" in row else [])])
    ratios = [case["ratio"] for case in row["cases"]]
    return Comparison(row["name"], row["task"], row["peer"], row["date"], row["machine"], ratios, figures)


def describe_machine(run: Row) -> tuple[str, str]:
    return run["date"], f"{run['processor']}, {run['threads']} threads"


def compute_medians(
    runs_by_label: Mapping[str, Sequence[Row]], titles: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """Return the medians over a competitor's runs, by title and measurement, for the labels that have a title."""
    return {
        titles[label]: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for label, runs in runs_by_label.items()
        if runs and label in titles
    }


def quote_means(text: str, comparisons: Iterable[Comparison]) -> str:
    """Return a page with the means of the table in its links to rows of the table.

    Raises:
        ValueError: if a link with a number as its text leads to no row.
    """
    means = {comparison.name: comparison.mean for comparison in comparisons}

    def write_mean(quote: re.Match[str]) -> str:
        if quote[2] not in means:
            raise ValueError(f"{quote[0]}: the rows are {', '.join(means)}")
        return f"[{means[quote[2]]}]({quote[1]})"

    return QUOTE.sub(write_mean, text)
