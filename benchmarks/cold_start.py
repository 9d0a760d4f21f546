"""Measure how soon nets are ready: the first result of a fresh process, imports included, and of a new input size.

    python benchmarks/cold_start.py --set-up /tmp/cold
    python benchmarks/cold_start.py --opencv /tmp/cold/bin/python --nets googlenet,lstm --rounds 3
    python benchmarks/cold_start.py --opencv /tmp/cold/bin/python --nets my/deploy.prototxt --only first,size,memory
    python benchmarks/cold_start.py --torch /tmp/cold/bin/python --nets resnet50 --only train

Competitors are caffejax's frozen nets and its pycaffe, each with an empty compilation cache (cold) and with a filled
one (cached), OpenCV 4.11 (its last major version that reads Caffe's nets is 4), and where installed ONNX Runtime and
OpenVINO with what caffejax exports. In training it is PyTorch, eager. All read the same files; each run is a process
of its own; all run once per round, in turn, so other load on the machine falls on all alike. Numbers are medians over
rounds; those in brackets are ratios to OpenCV's, or PyTorch's, whose geometric means are the last line.

Nets are public ones by name, looked up in folders or zip files of prototxts, else in configs/; or prototxts. A
.caffemodel beside one is used, otherwise weights are random. A competitor whose outputs differ by more than 1e-3 of
the largest value is named: of detections one box that falls on the other side of a threshold may do that.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cold_start_nets import (
    CONFIG_OF,
    PUBLISHED,
    TRAINED,
    NetFiles,
    find_nets,
    write_inference,
    write_onnx_model,
    write_training,
)
from competitor_client import FOLDER, describe_run, format_head, format_headline, format_row

from caffejax import CaffejaxError

TOLERANCE = 1e-3
OPENCV = "opencv-python-headless==4.11.0.86"
TORCH = "torch==2.13.0"
ONNX_ENGINES = ("onnxruntime", "openvino")
Medians = dict[str, dict[str, float]]  # by competitor
JOBS = ("first", "size", "memory", "train")


@dataclass(frozen=True)
class Entry:
    """A competitor: its name in tables and in `cold_start_process`, its interpreter, and the state of its cache."""

    label: str
    name: str
    python: str = sys.executable
    has_filled_cache: bool | None = None  # whether it finds a filled compilation cache; None if it has none


@dataclass
class Table:
    """A table of medians by net and competitor."""

    title: str
    shown_key: str  # what is shown of each competitor's medians
    format_cell: Callable[[Mapping[str, float]], str] | None = None  # the cell, where it says more than that
    rows: dict[str, Medians] = field(default_factory=dict)

    def format(self, entries: list[Entry], base: str) -> str:
        """Return the table in Markdown, with ratios to one competitor and their geometric means."""
        lines = [f"\n## {self.title}\n", format_head(["net", *(entry.label for entry in entries)])]
        ratios: dict[str, list[float]] = {}
        for net, row in self.rows.items():
            cells = []
            for entry in entries:
                if entry.label not in row or self.shown_key not in row[entry.label]:
                    cells.append("-")
                    continue
                medians = row[entry.label]
                cell = self.format_cell(medians) if self.format_cell else f"{medians[self.shown_key]:.3g}"
                if base in row and entry.label != base:
                    ratio = medians[self.shown_key] / row[base][self.shown_key]
                    ratios.setdefault(entry.label, []).append(ratio)
                    cell += f" ({ratio:.2f})"
                cells.append(cell)
            lines.append(format_row([net, *cells]))
        means = (f"{statistics.geometric_mean(ratios[e.label]):.2f}" if e.label in ratios else "" for e in entries)
        return "\n".join([*lines, format_row([f"geometric mean of ratios to {base}", *means])])


def format_with_imports(times: Mapping[str, float]) -> str:
    return f"{times['first']:.2f} = {times['imports']:.2f} + {times['rest']:.2f}"


def make_tables(jobs: list[str]) -> list[Table]:
    """Return the empty tables for the measurements of inference."""
    tables = []
    if "first" in jobs:
        title = "First result, seconds from the process's start = imports + the rest"
        tables.append(Table(title, "first", format_with_imports))
    if "size" in jobs:
        tables += [
            Table("First call at a new input size, ms", "resized"),
            Table("Largest of calls 2 to 40, in steady medians", "worst"),
            Table("The same after a new input size", "resized_worst"),
        ]
    if "size" in jobs or "memory" in jobs:
        tables.append(Table("Steady call, ms", "steady"))
    if "memory" in jobs:
        tables.append(Table("Resident memory after steady calls, MiB", "memory"))
    return tables


class Bench:
    """The options of a benchmark, and the notes to print below the tables."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.jobs = [job for job in JOBS if job in options.only]
        self.notes: list[str] = []
        self.results: list[dict[str, Any]] = []
        engines = [
            Entry("frozen, cold", "frozen", has_filled_cache=False),
            Entry("frozen, cached", "frozen", has_filled_cache=True),
            Entry("pycaffe, cold", "pycaffe", has_filled_cache=False),
            Entry("pycaffe, cached", "pycaffe", has_filled_cache=True),
            Entry("OpenCV", "opencv", options.opencv or sys.executable),
            Entry("ONNX Runtime", "onnxruntime"),
            Entry("OpenVINO", "openvino"),
        ]
        inference = self.jobs != ["train"]
        self.engines = [e for e in engines if inference and e.name in options.engines and self._is_installed(e)]
        trainers = [
            Entry("caffejax, cold", "solver", has_filled_cache=False),
            Entry("caffejax, cached", "solver", has_filled_cache=True),
        ]
        torch = Entry("PyTorch", "torch", options.torch or sys.executable)
        self.trainers = [*trainers, torch] if "train" in self.jobs and self._is_installed(torch) else trainers

    def _is_installed(self, entry: Entry) -> bool:
        """Return whether a competitor is installed; those of caffejax always are."""
        statement = "import cv2; cv2.dnn.readNetFromCaffe" if entry.name == "opencv" else f"import {entry.name}"
        if entry.has_filled_cache is not None:
            return True
        process = subprocess.run([entry.python, "-c", statement], capture_output=True, check=False)
        if process.returncode:
            self.notes.append(f"{entry.label} is not installed, or cannot read Caffe's nets")
        return process.returncode == 0

    def run(self, entry: Entry, folder: Path, jobs: list[str], filled_cache: Path) -> dict[str, float] | None:
        """Run a competitor once in a fresh process; return its measurements, or None if it failed."""
        if entry.name in ONNX_ENGINES:  # the model is of one size
            jobs = [job for job in jobs if job != "size"]
        with tempfile.TemporaryDirectory() as empty_folder:
            cache = str(filled_cache if entry.has_filled_cache else empty_folder)
            environment = os.environ | {"OMP_NUM_THREADS": str(self.options.threads), "CAFFEJAX_CACHE": cache}
            command = [os.path.abspath(entry.python), "cold_start_process.py", entry.name, str(folder)]
            settings = [",".join(jobs), str(self.options.seconds), str(self.options.threads)]
            command += [repr(time.monotonic()), *settings]
            process = subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True, check=False)
        if process.returncode:
            print(f"{entry.label}: {process.stderr[-2000:]}", file=sys.stderr)
            return None
        result: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
        return result | {"rest": result["first"] - result["imports"]}

    def measure_in_turns(
        self,
        net: str,
        entries: list[Entry],
        folder: Path,
        jobs: list[str],
        find_difference: Callable[[Entry, Any], str | None],
    ) -> Medians:
        """Run all once to fill caches and compare outputs, then once in each round; return medians by competitor."""
        cache_folder = folder / "cache"
        working_entries = []
        for entry in entries:
            measured_times = self.run(entry, folder, jobs, cache_folder)
            if measured_times is not None:
                working_entries.append(entry)
            failure = "fails" if measured_times is None else find_difference(entry, measured_times)
            if failure is not None:
                self.notes.append(f"{net}: {entry.label} {failure}")
        runs: dict[str, list[dict[str, float]]] = {entry.label: [] for entry in working_entries}
        for _ in range(self.options.rounds):
            for entry in working_entries:
                if (measured_times := self.run(entry, folder, jobs, cache_folder)) is not None:
                    runs[entry.label].append(measured_times)
        self.results.append({"net": net, "jobs": jobs, "runs": runs})
        return {
            label: {key: statistics.median(run[key] for run in measured_times) for key in measured_times[0]}
            for label, measured_times in runs.items()
            if measured_times
        }

    def measure_in_folder(self, measure: Callable[[NetFiles, Path], Medians], net_files: NetFiles) -> Medians:
        """Measure a net in its own folder; if that fails, note the net and continue with the others."""
        try:
            with tempfile.TemporaryDirectory() as folder:
                medians = measure(net_files, Path(folder))
        except (CaffejaxError, subprocess.CalledProcessError) as error:
            self.notes.append(f"{net_files.name}: {str(error).splitlines()[0]}")
            return {}
        print(f"{net_files.name} measured", file=sys.stderr, flush=True)
        return medians

    def measure_inference(self, net_files: NetFiles, folder: Path) -> Medians:
        """Measure inference of a net."""
        write_inference(net_files, folder)
        entries = self.engines
        if any(entry.name in ONNX_ENGINES for entry in entries):
            try:
                write_onnx_model(folder)
            except Exception as error:
                self.notes.append(f"{net_files.name}: no ONNX model: {str(error).splitlines()[0]}")
                entries = [entry for entry in entries if entry.name not in ONNX_ENGINES]
        jobs = [job for job in self.jobs if job != "train"]
        net_info = json.loads((folder / "about.json").read_text())
        sizes = ("first", "second") if "size" in jobs else ("first",)

        def find_difference(entry: Entry, _: Any) -> str | None:
            expected = next(e.name for e in entries if (folder / f"{e.name}-first.npz").exists())
            for size in sizes[:1] if entry.name in ONNX_ENGINES else sizes:
                with (
                    np.load(folder / f"{expected}-{size}.npz") as ours,
                    np.load(folder / f"{entry.name}-{size}.npz") as peer_outputs,
                ):
                    for blob in net_info["outputs"]:
                        if blob not in peer_outputs:
                            return f"has no output {blob}"
                        error = compute_difference(ours[blob], peer_outputs[blob], blob in net_info["detections"])
                        if not error <= TOLERANCE:
                            return f"gives another {blob}: {error:.1e} of the largest value apart ({size} size)"
            return None

        return self.measure_in_turns(net_files.name, entries, folder, jobs, find_difference)

    def train(self, net_files: NetFiles, folder: Path) -> Medians:
        """Measure training of a net."""
        write_training(net_files.name, folder)
        has_dropout = '"Dropout"' in (folder / "train.prototxt").read_text()
        entries = self.trainers
        if any(entry.name == "torch" for entry in entries):
            subprocess.run(
                [entries[-1].python, "cold_start_process.py", "write_torch", str(folder)], cwd=FOLDER, check=True
            )
        losses: list[float] = []

        def find_difference(_: Entry, measured: Any) -> str | None:
            losses.append(measured["loss"])
            relative_error = abs(losses[-1] / losses[0] - 1)
            if relative_error < (0.3 if has_dropout else 5e-3):
                return None
            return f"has another loss: {losses[-1]:g}, not {losses[0]:g}"

        name = CONFIG_OF.get(net_files.name, net_files.name)
        return self.measure_in_turns(f"{name} (training)", entries, folder, ["train"], find_difference)


def _sort_scores(detections: np.ndarray) -> np.ndarray:
    """Return the best scores in order; near ties may change the order of rows. Empty rows are -1, or 0 in OpenCV."""
    rows = detections.reshape(-1, 7)  # image, label, score, box
    return -np.sort(-rows[(rows[:, 0] >= 0) & (rows[:, 2] > 0), 2])[:100]


def compute_difference(ours: np.ndarray, peer_outputs: np.ndarray, detections: bool) -> float:
    """Return the largest difference relative to the largest value; of detections, the difference of sorted scores."""
    if detections:
        ours, peer_outputs = _sort_scores(ours), _sort_scores(peer_outputs)
        if not ours.size:
            return float("nan")  # shows nothing
    if ours.size != peer_outputs.size or not np.isfinite(peer_outputs).all():
        return float("inf")
    return float(np.abs(ours.ravel() - peer_outputs.ravel()).max() / max(np.abs(ours).max(), 1e-30))


def make_environment(folder: Path) -> None:
    """Create a virtual environment with OpenCV, PyTorch, and the packages of this interpreter."""
    import site

    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", OPENCV, TORCH], check=True)
    packages = subprocess.run(
        [python, "-c", "import site; print(site.getsitepackages()[0])"], capture_output=True, text=True, check=True
    ).stdout.strip()
    (Path(packages) / "beside.pth").write_text("\n".join(site.getsitepackages()) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split_commas = lambda text: [s for s in text.split(",") if s]  # noqa: E731
    engines = ["frozen", "pycaffe", "opencv"]
    parser.add_argument(
        "--nets", type=split_commas, default=[], help="names, prototxts, folders, zips; " + ",".join(PUBLISHED)
    )
    parser.add_argument("--only", type=split_commas, default=list(JOBS), help=",".join(JOBS))
    parser.add_argument(
        "--engines", type=split_commas, default=engines, help=",".join([*engines, "onnxruntime", "openvino"])
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10, help="at most, for the calls 2 to 40")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--opencv", metavar="PYTHON", help="an interpreter that has OpenCV 4.11")
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has PyTorch, and all of ours")
    parser.add_argument("--set-up", type=Path, metavar="FOLDER", help="make an environment for both, and end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured")
    options = parser.parse_args()
    if options.set_up:
        make_environment(options.set_up)
        return
    if unknown := set(options.only) - set(JOBS):
        parser.error(f"--only: {', '.join(sorted(unknown))}: there are {', '.join(JOBS)}")
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])  # competitors inherit it
    bench = Bench(options)
    run = describe_run(options, {})
    print(format_headline(run), flush=True)
    tables = make_tables(bench.jobs)
    training = [
        Table(
            "First training step, seconds from the process's start = imports + the rest", "first", format_with_imports
        ),
        Table("Second training step, ms", "second"),
    ]
    with tempfile.TemporaryDirectory() as scratch:
        nets = find_nets(options.nets, Path(scratch))
        for net_files in nets if tables else []:
            medians = bench.measure_in_folder(bench.measure_inference, net_files)
            for table in tables:
                table.rows[net_files.name] = medians
        for net_files in nets if "train" in bench.jobs else []:
            if net_files.name in TRAINED:
                medians = bench.measure_in_folder(bench.train, net_files)
                for table in training:
                    table.rows[CONFIG_OF.get(net_files.name, net_files.name)] = medians
    for table in tables:
        print(table.format(bench.engines, "OpenCV"))
    if "train" in bench.jobs:
        for table in training:
            print(table.format(bench.trainers, "PyTorch"))
    print("".join(f"\n{note}." for note in dict.fromkeys(bench.notes)))
    if options.json:
        options.json.write_text(json.dumps({"run": run, "nets": bench.results}, indent=1))


if __name__ == "__main__":
    main()
