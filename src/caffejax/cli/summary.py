"""Summarise a net: layers, shapes, parameters, multiply-adds, activation memory, receptive field and stride.

NET may also be a file with weights, such as a .caffemodel: the table then lists the layers' blobs.

Receptive field and stride are in pixels of the net's inputs along each spatial axis; "-" means that an output depends
on all pixels, as it does after an InnerProduct, or that receptive field and stride are undefined. Multiply-adds and
activations are for the full batch. With --memory, the table also shows the bytes of each layer, and the memory of
training is printed below it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..base.glog import start_logging
from ..base.human_readable import format_bytes
from . import flags, net_flags

if TYPE_CHECKING:
    from ..tools.summary.memory_report import CompiledMemory, MemoryReport

HELP = "summarise a net: shapes, parameters, multiply-adds, memory, receptive fields"
EXAMPLE = "caffejax summary deploy.prototxt --batch=1"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    net_flags.add_net_argument(parser)
    flags.add(parser, "phase", "the net's phase (default: TEST; with --memory TRAIN)", choices=("TRAIN", "TEST"))
    net_flags.add_state_flags(parser)
    flags.add(parser, "batch", "the batch size (default: the net's)", type=flags.parse_positive, metavar="N")
    flags.add_json_flag(parser, "print the exact numbers as JSON")
    flags.add_switch(parser, "memory", "print the bytes of each layer, and the memory of training")
    flags.add_switch(parser, "compiled", "with --memory, also compile the loss and its gradients for XLA's figures")
    flags.add_options(parser, "kernels", "remat", "memory_limit")


def run(options: argparse.Namespace) -> None:
    """Print the summary."""
    start_logging()
    if _is_weights_file(options.model):
        _print_weights(options)
        return
    options.phase = options.phase or ("TRAIN" if options.memory else "TEST")
    if options.memory:
        _print_memory(options)
        return
    from ..core.graph.reshape import with_batch
    from ..tools.summary import summarize

    graph, is_guess = net_flags.build_graph(options)
    summary = summarize(graph if options.batch is None else with_batch(graph, options.batch))
    print(summary.to_json() if options.json else summary)
    if is_guess and not options.json:
        print("The shapes and counts follow from a guessed image size, because the source of the images is absent.")


def _is_weights_file(path: str) -> bool:
    from ..core.checkpoints.weight_formats import find_extension

    return bool(find_extension(path, known_only=False))


def _print_weights(options: argparse.Namespace) -> None:
    from ..base.human_readable import format_count, format_shape
    from ..base.paths import check_exist
    from ..base.text_table import align_columns
    from ..core.checkpoints.weight_formats import FORMATS, find_extension

    check_exist([options.model])
    weights = FORMATS[find_extension(options.model)].read(options.model)
    blobs = [
        (layer, name, blob)
        for layer, arrays in weights.items()
        for name, blob in (arrays.items() if isinstance(arrays, Mapping) else enumerate(arrays))
        if blob is not None
    ]
    if options.json:
        flags.print_json([{"layer": layer, "blob": i, "shape": list(blob.shape)} for layer, i, blob in blobs])
        return
    rows = [(layer, str(i), format_shape(blob.shape) or "scalar", f"{blob.size:,}") for layer, i, blob in blobs]
    print("\n".join(align_columns([("layer", "blob", "shape", "numbers"), *rows], 3)))
    count = format_count(len({layer for layer, _, _ in blobs}), "layer")
    total = f"{sum(blob.size for _, _, blob in blobs):,}"
    print(f"\n{count} with {format_count(len(blobs), 'blob')}, {total} numbers")


def _print_memory(options: argparse.Namespace) -> None:
    from ..tools.summary.memory_report import report_compiled_memory, report_memory

    net = net_flags.build_net(options)
    report = report_memory(net, options.batch)
    compiled_memory = report_compiled_memory(net, options.batch) if options.compiled else None
    if options.json:
        flags.print_json(_as_json(report, compiled_memory))
        return
    print(report)
    if compiled_memory:
        _print_compiled_memory(compiled_memory)


def _print_compiled_memory(compiled_memory: CompiledMemory) -> None:
    sizes = ", ".join(f"{name} {format_bytes(size)}" for name, size in compiled_memory._asdict().items())
    print(f"XLA, loss and gradients: {sizes}")


def _as_json(report: MemoryReport, compiled_memory: CompiledMemory | None) -> dict[str, object]:
    from dataclasses import asdict

    values: dict[str, object] = {"layers": [asdict(layer) for layer in report.layers], "total": report.total}
    if training := report.training:
        names = ("fixed", "peak_without_remat", "peak", "recomputed", "fits")
        values["training"] = {name: getattr(training, name) for name in names}
    if compiled_memory:
        values["compiled"] = compiled_memory._asdict()
    return values
