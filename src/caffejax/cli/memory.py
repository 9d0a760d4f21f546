"""Report the memory of a net, layer by layer, and the memory of training. No layer runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ..human_readable import counted, in_words
from ..text_table import aligned
from . import flags, net_flags

if TYPE_CHECKING:
    from ..debugging import CompiledMemory, MemoryReport

HELP = "report params, activations, bytes and multiply-adds by layer"
EXAMPLE = "caffejax memory --model=configs/resnet152/train_val.prototxt --batch=32 --remat=auto --memory_limit=4GiB"

_TITLES = ("layer", "type", "tops", "parameters", "activations", "bytes", "multiply-adds")
_TEXT_COLUMNS = 3


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    net_flags.add_flags(parser)
    flags.add(parser, "batch", "the batch size (default: the net's)", type=flags.positive, metavar="N")
    flags.add_switch(parser, "compiled", "also compile the loss and its gradients, and print XLA's figures")
    flags.add_options(parser, "kernels", "remat", "memory_limit")


def run(options: argparse.Namespace) -> None:
    """Report the memory."""
    from ..debugging import compiled_memory, memory_report

    net = net_flags.net_of(options)
    report = memory_report(net, options.batch)
    print("\n".join(aligned(_rows(report), _TEXT_COLUMNS)))
    _print_training(report)
    if options.compiled:
        _print_compiled(compiled_memory(net, options.batch))


def _rows(report: MemoryReport) -> Iterator[tuple[str, ...]]:
    yield _TITLES
    for layer in report.layers:
        tops = " ".join("x".join(map(str, shape)) or "scalar" for shape in layer.top_shapes)
        yield layer.name, layer.type, tops, *_numbers({name: getattr(layer, name) for name in report.total})
    yield "total", "", "", *_numbers(report.total)


def _numbers(of: Mapping[str, int | None]) -> tuple[str, ...]:
    size = (of["parameter_bytes"] or 0) + (of["activation_bytes"] or 0)
    numbers = of["parameters"], of["activations"], size, of["multiply_adds"]
    return tuple("?" if n is None else f"{n:,}" for n in numbers)


def _print_training(report: MemoryReport) -> None:
    if (training := report.training) is None:
        return
    print(f"\nParameters, gradients, history, statistics and a batch: {in_words(training.fixed)}")
    print(f"Training, with activations and their diffs: about {in_words(training.peak_without_remat)}")
    if training.recomputed:
        groups = f"{training.recomputed} of {len(report.layers)} layers in {counted(len(training.groups) - 1, 'group')}"
        print(f"Training, computing {groups} twice: about {in_words(training.peak)}")
    if not training.fits:
        print("That is more than the limit, and cannot be reduced by recomputing; a smaller batch takes less.")


def _print_compiled(figures: CompiledMemory) -> None:
    words = ", ".join(f"{name} {in_words(size)}" for name, size in figures._asdict().items())
    print(f"XLA, loss and gradients: {words}")
