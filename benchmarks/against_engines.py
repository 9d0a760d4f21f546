"""Compare inference of caffejax, frozen and not, with common inference engines on the same nets.

    pip install onnx onnxruntime openvino ncnn pnnx opencv-python-headless torch
    python benchmarks/against_engines.py --threads 2
    python benchmarks/against_engines.py --nets squeezenet --batches 1 --engines onnxruntime,openvino --rounds 3
    python benchmarks/against_engines.py --nets mobilenet_ssd,ssd300,fcn8s,lstm --published nets.zip

Each competitor reads the same net from files in a process of its own; all have as many threads as cores, and run once
per round, in turn, so other load on the machine falls on all alike. Peers are given an ONNX model (ncnn what pnnx makes
of it, OpenCV up to version 4 the Caffe model): exported by torch and by caffejax, and the one that is faster counts.
Published nets, whose prototxts `--published` finds, have their own batch size, and are exported by caffejax only. A
peer whose outputs differ is left out, and named. Prints milliseconds (medians) and ratios (medians over rounds; more
than 1: frozen is faster); of the frozen net and the best peer also the seconds from reading the files to the first
result (of the frozen net without and with a compilation cache), and the MiB that this took beside imported libraries.

`--precision int8` compares the net frozen in int8 with ONNX Runtime's `quantize_static` of the same net, both
calibrated on the benchmark's batch, and says how far each is from float32.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from cold_start_nets import find_nets, write_inference, write_onnx_model
from competitor_client import (
    Competitor,
    describe_run,
    format_head,
    format_headline,
    format_row,
    median_ratio,
    start_with_filled_cache,
    time_in_turns,
)
from engine_competitor import ENGINES
from engine_models import EXPORTERS, write_models
from training_competitor import BATCHES

from caffejax import CaffejaxError

NETS = ("lenet", "cifar10_full", "caffenet", "googlenet", "squeezenet", "resnet50", "mobilenet")
PUBLISHED_NETS = ("mobilenet_ssd", "ssd300", "fcn8s", "lstm")
OWN_ENGINES = ("frozen", "unfrozen")
PEERS = tuple(name for name in ENGINES if not name.startswith(OWN_ENGINES) and not name.endswith("int8"))


class Bench:
    """The options of a benchmark, and the notes to print below the table."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.threads, self.rounds, self.engines = options.threads, options.rounds, options.engines
        self.precision = options.precision
        self.pythons = dict(pair.split("=", 1) for pair in options.python)
        self.published = options.published
        self.notes: list[str] = []

    def version(self, engine: str) -> str | None:
        """Return an engine's version, or None if it is not installed."""
        module, _ = ENGINES[engine]
        command = [self._python(engine), "-c", f"import {module}; print({module}.__version__)"]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        return process.stdout.strip() if process.returncode == 0 else None

    def command(self, engine: str, folder: Path) -> list[str]:
        return [self._python(engine), "engine_competitor.py", engine, str(folder), str(self.threads)]

    def _python(self, engine: str) -> str:
        return os.path.abspath(self.pythons.get(engine, sys.executable))

    @contextlib.contextmanager
    def competitors(self, net: str, batch: int) -> Iterator[tuple[dict[str, Competitor], float]]:
        """Start all competitors of a net; also return the seconds to the frozen net's first result without a cache."""
        with tempfile.TemporaryDirectory() as temporary_folder, contextlib.ExitStack() as exit_stack:
            folders = self._write_models(net, batch, Path(temporary_folder))
            caffejax_folder, cache = folders["caffejax"], Path(temporary_folder) / "cache"
            command = self.command(self._frozen, caffejax_folder)
            cold_seconds, frozen = start_with_filled_cache(command, self.threads, cache)
            exit_stack.callback(frozen.process.kill)
            unfrozen = Competitor(self.command("unfrozen", caffejax_folder), self.threads, cache)
            exit_stack.callback(unfrozen.process.kill)
            if self.precision == "float32":
                atol = _absolute_tolerance(unfrozen.result)
                np.testing.assert_allclose(frozen.result, unfrozen.result, rtol=1e-4, atol=atol, err_msg=net)
            else:
                self._note_error(f"{net} ({batch}): frozen", frozen.result, unfrozen.result)
            ready = {"frozen": frozen, "unfrozen": unfrozen}
            for engine in self.engines:
                competitor = self._peer(engine, f"{net} ({batch})", folders, unfrozen.result)
                if competitor is not None:
                    exit_stack.callback(competitor.process.kill)
                    ready[engine] = competitor
            yield ready, cold_seconds

    def _write_models(self, net: str, batch: int, folder: Path) -> dict[str, Path]:
        """Write the models of a net; return the folder of each exporter."""
        is_published = net in PUBLISHED_NETS
        exporters = [e for e in EXPORTERS if e == "caffejax" or (not is_published and importlib.util.find_spec(e))]
        folders = {exporter: folder / exporter for exporter in exporters}
        for exporter, exporter_folder in folders.items():
            exporter_folder.mkdir()
            if is_published:
                (net_files,) = find_nets([net, *self.published], folder)
                write_inference(net_files, exporter_folder)
                (exporter_folder / "first.npz").rename(exporter_folder / "inputs.npz")
                try:
                    write_onnx_model(exporter_folder)
                except CaffejaxError as error:
                    self.notes.append(f"{net} is not exported: {error}")
            else:
                write_models(net, batch, exporter_folder, exporter)
        return folders

    @property
    def _frozen(self) -> str:
        return "frozen" if self.precision == "float32" else f"frozen_{self.precision}"

    def _note_error(self, subject: str, result: np.ndarray, expected: np.ndarray) -> None:
        error = np.abs(result - expected).max() / np.abs(expected).max()
        self.notes.append(f"{subject} differs from float32 by {error:.2g} of the largest output")

    def _peer(self, engine: str, row: str, folders: Mapping[str, Path], expected: np.ndarray) -> Competitor | None:
        """Start a peer on each model; return the fastest one whose outputs equal `expected`."""
        ready: dict[str, Competitor] = {}
        for exporter, folder in folders.items():
            try:
                competitor = Competitor(self.command(engine, folder), self.threads)
            except RuntimeError:
                self.notes.append(f"{row}: {engine} does not read the model by {exporter}")
                continue
            result = competitor.result
            if self.precision != "float32":
                self._note_error(f"{row}: {engine}", result, expected)
                ready[exporter] = competitor
            elif result.shape == expected.shape and np.allclose(
                result, expected, rtol=5e-3, atol=_absolute_tolerance(expected)
            ):
                ready[exporter] = competitor
            else:
                competitor.process.kill()
                self.notes.append(f"{row}: {engine} gives other outputs on the model by {exporter}")
        if not ready:
            return None
        medians = {exporter: statistics.median(times) for exporter, times in time_in_turns(ready, 3).items()}
        best = min(medians, key=medians.__getitem__)
        for exporter, competitor in ready.items():
            if exporter != best:
                competitor.process.kill()
        if len(medians) > 1:
            times_text = ", ".join(f"{ms:.2f} ms by {exporter}" for exporter, ms in medians.items())
            print(f"{row}: {engine} on the models {times_text}", file=sys.stderr, flush=True)
        return ready[best]

    def compare(self, net: str, batch: int) -> dict[str, Any]:
        """Measure a net at a batch size; return the measurements as JSON values."""
        with self.competitors(net, batch) as (competitors, cold_seconds):
            times = time_in_turns(competitors, self.rounds)
            firsts = {name: competitor.first for name, competitor in competitors.items()}
            peaks = {name: competitor.end()["peak"] for name, competitor in competitors.items()}
        medians = {name: statistics.median(t) for name, t in times.items()}
        peers = [name for name in competitors if name not in OWN_ENGINES]
        return {
            "net": net,
            "batch": batch,
            "ms": medians,
            "best": min(peers, key=medians.__getitem__) if peers else None,
            "ratio": {name: median_ratio(times[name], times["frozen"]) for name in competitors if name != "frozen"},
            "first": firsts | {"frozen, cold": cold_seconds},
            "peak": peaks,
        }

    def format_result(self, result: Mapping[str, Any]) -> dict[str, str]:
        """Return a row of the table, keyed by column."""
        ms, first, peak, best = (result[name] for name in ("ms", "first", "peak", "best"))
        row = {"net (batch)": f"{result['net']} ({result['batch']})"}
        row |= {name: f"{ms[name]:.3g}" if name in ms else "-" for name in (*OWN_ENGINES, *self.engines)}
        row["best peer / frozen"] = f"{result['ratio'][best]:.2f}" if best else "-"
        row["unfrozen / frozen"] = f"{result['ratio']['unfrozen']:.2f}"
        own_seconds = f"{first['frozen, cold']:.2f}, {first['frozen']:.2f}"
        row["first result, s: frozen cold, cached / peer"] = (
            f"{own_seconds} / {first[best]:.2f}" if best else own_seconds
        )
        row["MiB: frozen / peer"] = f"{peak['frozen']:.0f}" + (f" / {peak[best]:.0f}" if best else "")
        return row


def _absolute_tolerance(expected: np.ndarray) -> float:
    """Return the tolerance for small numbers among outputs: 1e-5 of the largest, but at least 1e-5."""
    return 1e-5 * max(1.0, float(np.abs(expected).max()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split = lambda text: [s for s in text.split(",") if s]  # noqa: E731
    parser.add_argument("--nets", type=split, default=list(NETS), help=",".join([*NETS, *PUBLISHED_NETS]))
    parser.add_argument("--published", type=split, default=[], help="folders and zip files with published prototxts")
    parser.add_argument("--batches", type=split, default=["1", "large"], help="1, large (the net's own), or numbers")
    parser.add_argument("--engines", type=split, help="peers: " + ",".join(PEERS) + "; for int8 onnxruntime_int8")
    parser.add_argument("--precision", choices=("float32", "bfloat16", "int8"), default="float32", help="of the frozen")
    parser.add_argument("--python", action="append", default=[], help="another interpreter for one: opencv=PATH")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured")
    options = parser.parse_args()
    if options.engines is None:
        options.engines = ["onnxruntime_int8"] if options.precision == "int8" else list(PEERS)
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])  # competitors inherit it
    bench = Bench(options)
    versions = {engine: bench.version(engine) for engine in options.engines}
    bench.engines = [engine for engine, version in versions.items() if version]
    bench.notes += [f"{engine} is not installed" for engine, version in versions.items() if not version]
    run = describe_run(options, versions)
    print(f"{format_headline(run)}\n")
    rows: list[dict[str, Any]] = []
    ratios: dict[str, list[float]] = {}
    for net in options.nets:
        for batch in ["1"] if net in PUBLISHED_NETS else options.batches:
            rows.append(bench.compare(net, BATCHES[net] if batch == "large" else int(batch)))
            row, best = bench.format_result(rows[-1]), rows[-1]["best"]
            if len(rows) == 1:
                print(format_head(row))
            print(format_row(row.values()), flush=True)
            if best:
                ratios.setdefault(batch, []).append(rows[-1]["ratio"][best])
    means = (f"batch {batch} {statistics.geometric_mean(values):.2f}" for batch, values in ratios.items())
    print("\nGeometric means of best peer / frozen:", ", ".join(means))
    print("".join(f"\nNote: {note}." for note in bench.notes))
    if options.json:
        options.json.write_text(json.dumps({"run": run, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
