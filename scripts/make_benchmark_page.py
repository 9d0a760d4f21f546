"""Write the tables and charts of docs/benchmarks.md from benchmarks/results/*.json, and the means that pages quote.

The benchmarks write these files, except noted.json, which holds what benchmarks printed, noted by hand.

python benchmarks/against_torch.py --json benchmarks/results/against_torch.json    # needs torch; the others likewise
python scripts/make_benchmark_page.py            # writes the page and its charts, and the quoted means
python scripts/make_benchmark_page.py --check    # fails if a page is out of date
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmark_means import NETS, STARTS, TASKS, TITLES, compute_medians, list_comparisons, quote_means
from chart_style import draw_bars, new_figure, save_figure
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from page_writer import replace_part, write_or_check

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "benchmarks.md"
RESULTS = REPOSITORY / "benchmarks" / "results"
MARK = "scripts/make_benchmark_page.py"
ENGINES = {"openvino": "OpenVINO", "onnxruntime": "ONNX Runtime", "ncnn": "ncnn", "opencv": "OpenCV"}
START_COLUMNS = {  # by what cold_start.py measures: the title, and the form of the numbers
    "first": ("first result, s", "{:.2f}"),
    "resized": ("first call at a new input size, ms", "{:.3g}"),
    "steady": ("steady call, ms", "{:.3g}"),
    "memory": ("memory, MiB", "{:.0f}"),
}
TRAINING_STARTS = {"caffejax, cold": "empty cache", "caffejax, cached": "filled cache", "PyTorch": "PyTorch"}
Row = Mapping[str, Any]
Series = dict[str, list[float | None]]  # a number for each net, None if it was not measured


def against_torch(result: Row) -> tuple[str, Figure]:
    """Return the text and the chart of caffejax against PyTorch."""
    rows_by_task = {task: {row["net"]: row for row in result["rows"] if row["task"] == task} for task in TASKS}
    nets = list(dict.fromkeys(row["net"] for row in result["rows"]))
    ratios: Series = {
        words: [rows_by_task[task][net]["ratio"]["fast"] if net in rows_by_task[task] else None for net in nets]
        for task, words in TASKS.items()
    }

    def make_cells(net: str) -> Iterator[str]:
        yield NETS[net]
        for rows in rows_by_task.values():
            row = rows.get(net)
            yield f"{row['batch']}: {row['ms']['fast']:.3g} ({row['ratio']['fast']:.2f})" if row else "-"
        first = rows_by_task["step"].get(net)
        yield "{cold:.1f} / {cached:.1f}".format(**first["first"]["fast"]) if first else "-"

    titles = ["net", *TASKS.values(), "first step, s: empty / filled cache"]
    figure, (axes,) = new_figure(height=0.55 * len(nets) + 1)
    draw_bars(axes, [NETS[net] for net in nets], ratios)
    finish_panel(axes, "Times as fast as PyTorch (the fastest of eager, channels last, torch.compile)")
    return format_table(titles, map(make_cells, nets)), figure


def against_engines(result: Row) -> tuple[str, Figure]:
    """Return the text and the chart of frozen nets against inference engines."""
    rows = result["rows"]
    engines = [engine for engine in ENGINES if any(engine in row["ms"] for row in rows)]

    def make_cells(row: Row) -> Iterator[str]:
        ms, best = row["ms"], row["best"]
        yield f"{NETS[row['net']]} ({row['batch']})"
        yield from (f"{ms[name]:.3g}" if name in ms else "-" for name in ("frozen", "unfrozen", *engines))
        yield f"{row['ratio'][best]:.2f}" if best else "-"
        for number_format, values in ("{:.2g}", row["first"]), ("{:.0f}", row["peak"]):
            yield " / ".join(number_format.format(values[name]) for name in ("frozen", best) if name)

    titles = ["net (batch)", "frozen", "not frozen", *map(ENGINES.__getitem__, engines), "best engine / frozen"]
    titles += ["first result, s: frozen / best engine", "MiB: frozen / best engine"]
    figure, panels = new_figure(2, height=0.45 * len(rows) / 2 + 1, sharex=True)
    for is_batch_1, axes in zip((True, False), panels, strict=True):
        panel_rows = [row for row in rows if (row["batch"] == 1) == is_batch_1]
        series: Series = {ENGINES[engine]: [row["ratio"].get(engine) for row in panel_rows] for engine in engines}
        draw_bars(axes, [NETS[row["net"]] + f" ({row['batch']})" * (not is_batch_1) for row in panel_rows], series)
        finish_panel(axes, f"Times as fast as engines, {'batch 1' if is_batch_1 else 'larger batches'}")
    return format_table(titles, map(make_cells, rows)), figure


def cold_start(result: Row) -> tuple[str, Figure]:
    """Return the text and the chart of the first result in a fresh process, and of later calls."""
    medians = {net["net"]: compute_medians(net["runs"], STARTS) for net in result["nets"]}
    nets = [net for net in NETS if net in medians]
    engines = [engine for engine in STARTS.values() if any(engine in medians[net] for net in nets)]

    def get_values(key: str, engine: str) -> list[float | None]:
        return [medians[net].get(engine, {}).get(key) for net in nets]

    def compute_speedups(peer: str, key: str, engine: str) -> list[float | None]:
        pairs = zip(get_values(key, peer), get_values(key, engine), strict=True)
        return [peer_value / our_value if peer_value and our_value else None for peer_value, our_value in pairs]

    def make_cells(net: str) -> Iterator[str]:
        yield NETS[net]
        for key, (_, number_format) in columns.items():
            measured = (medians[net].get(engine, {}).get(key) for engine in engines)
            yield " · ".join("-" if value is None else number_format.format(value) for value in measured)

    columns = {
        key: column for key, column in START_COLUMNS.items() if any(any(get_values(key, engine)) for engine in engines)
    }
    titles = ["net", *(title for title, _ in columns.values())]
    peers = [engine for engine in engines if engine not in ("frozen", "pycaffe")]
    figure, (left, right) = new_figure(2, height=0.6 * len(nets) + 1)
    draw_bars(left, [NETS[net] for net in nets], {engine: get_values("first", engine) for engine in engines})
    finish_panel(left, "First result of a fresh process, seconds", line=None)
    draw_bars(
        right,
        [NETS[net] for net in nets],
        {f"than {peer}": compute_speedups(peer, "steady", "frozen") for peer in peers},
        first_color=len(engines) - len(peers),
    )
    finish_panel(right, "Steady call, frozen: times as fast")
    ratios = {peer: compute_speedups(peer, "memory", "frozen") for peer in peers}
    line = f"Geometric means of the memory divided by a frozen net's: {format_means(ratios)}.\n"
    table = f"In each cell: {' · '.join(engines)}.\n\n{format_table(titles, map(make_cells, nets))}\n{line}"
    return f"{table}\n{format_training_starts(result)}", figure


def format_training_starts(result: Row) -> str:
    """Return the table of the seconds from a process's start to the end of the first training step."""
    rows = []
    for net in result["nets"]:
        name, separator, _ = net["net"].partition(" (training)")
        if separator:
            medians = compute_medians(net["runs"], TRAINING_STARTS)
            seconds = (medians.get(title, {}).get("first") for title in TRAINING_STARTS.values())
            rows.append([NETS.get(name, name), *("-" if n is None else f"{n:.2f}" for n in seconds)])
    intro = (
        "From the start of a fresh process to the end of the first training step, making the solver included, in "
        "seconds. PyTorch\nruns eagerly.\n\n"
    )
    return intro + format_table(["net", *TRAINING_STARTS.values()], rows) if rows else ""


def gpu(result: Row) -> tuple[str, None]:
    """Return the text of training steps on a GPU."""
    libraries = list(dict.fromkeys(library for row in result["rows"] for library in row["images_per_second"]))
    peers = [library for library in libraries if library != "caffejax"]

    def format_values(row: Row, key: str, names: Sequence[str], number_format: str) -> Iterator[str]:
        return (number_format.format(row[key][name]) if name in row[key] else "-" for name in names)

    def make_cells(row: Row) -> Iterator[str]:
        yield NETS[row["net"]]
        yield from format_values(row, "images_per_second", libraries, "{:.0f}")
        yield from format_values(row, "ratio", peers, "{:.2f}")
        yield ", ".join(format_values(row, "GiB", libraries, "{:.2f}"))

    titles = ["net", *libraries, *(f"to {peer}" for peer in peers), f"GiB: {', '.join(libraries)}"]
    return format_table(titles, map(make_cells, result["rows"])), None


PARTS: dict[Callable[[Row], tuple[str, Figure | None]], str] = {
    against_torch: """## Training and inference against PyTorch

Milliseconds after the batch size, and in brackets how many times as fast as the fastest of PyTorch's eager mode,
channels last and `torch.compile`. "First step" is the first training step, tracing and compiling included.
""",
    against_engines: """## Inference against engines

A net frozen by [`net.freeze(variables)`](inference.md), the same net not frozen, and the engines that people deploy
with: milliseconds, and how many times as fast as the best engine the frozen net is. The engines read ONNX; of the
models that torch and caffejax export, the faster one counts.
""",
    cold_start: """## Ready at once

From the start of a fresh process to the first result, imports included, with an empty compilation cache; then the first
call with another input size, a steady call, and the memory of the process. pycaffe is caffejax's, as scripts that
`import caffe` use it. OpenCV 4.11 reads the same prototxt and weights, ONNX Runtime the exported net, which has one
input size.
""",
    gpu: """## Training on a GPU

Images per second of training steps, from `benchmarks/gpu.py --batches 128 --jobs 10`, each library in its own process,
in turn. PyTorch has `torch.compile`, channels_last and `cudnn.benchmark`. Ratios are medians over the rounds, which
differ from quotients of the medians. [How it was measured, and what disturbed
it](development/accelerators.md#measured-on-a-gpu).
""",
}  # with the heading and introduction of their sections


def finish_panel(axes: Axes, title: str, line: float | None = 1) -> None:
    """Add the title and the legend of a panel, and a line at the peer's speed."""
    if line is not None:
        axes.axvline(line, color="black", linewidth=1)
    axes.set_title(title, loc="left")
    axes.legend(
        loc="upper left", bbox_to_anchor=(0, 0), borderaxespad=2.5, ncols=4, fontsize=8, columnspacing=1, handlelength=1
    )


def format_table(titles: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (titles, ["---"] * len(titles), *rows))


def format_means(ratios: Mapping[str, Iterable[float | None]]) -> str:
    """Return the geometric mean of each list of ratios, as words."""
    measured = {name: [value for value in values if value] for name, values in ratios.items()}
    return ", ".join(f"{statistics.geometric_mean(group):.2f} ({name})" for name, group in measured.items() if group)


def describe_run(run: Row) -> str:
    """Return when and how a run was made, as a paragraph."""
    conditions = [run["date"], run["processor"]]
    if "threads" in run:
        load = "while other work ran on the machine" if run["load"] is None else f"load average {run['load']} before it"
        conditions += [f"{run['threads']} threads", load]
    else:
        conditions += [run["precision"], f"batch {run['batch']}"]
    rounds = f"medians of {run['rounds']} rounds" if run["rounds"] > 1 else "one round"
    return f"*{', '.join(conditions)}; {', '.join([rounds, *map(' '.join, run['versions'].items())])}.*\n"


def make_pages(draw: bool = False) -> dict[Path, str]:
    """Return the page with its tables as they are now, and those that quote it; optionally draw the charts."""
    results = {file.stem: json.loads(file.read_text()) for file in RESULTS.glob("*.json")}
    comparisons = list_comparisons(results)
    table = format_table(TITLES, (comparison.make_cells() for comparison in comparisons))
    text = replace_part(PAGE.read_text(), f"{MARK}: means", f"\n{table}\n")
    for part, introduction in PARTS.items():
        name = part.__name__
        words, figure = part(results[name])
        content = f"\n{introduction}\n{words}\n{describe_run(results[name]['run'])}\n"
        if figure:
            content += f"![{figure.axes[0].get_title(loc='left')}](pictures/benchmark_{name}.png)\n\n"
            if draw:
                save_figure(figure, f"benchmark_{name}")
        text = replace_part(text, f"{MARK}: {name}", content)
    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    return {page: quote_means(text if page == PAGE else page.read_text(), comparisons) for page in pages}


if __name__ == "__main__":
    sys.exit(write_or_check(lambda: make_pages(draw="--check" not in sys.argv), __doc__))
