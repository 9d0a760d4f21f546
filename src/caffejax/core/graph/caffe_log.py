"""The lines that Caffe logs when it creates a net: the net's text, each layer's tops and shapes, and the memory."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator

from ...base.glog import log
from ..schema import format_text
from ..schema.caffe_pb2 import NetParameter
from .graph import Graph


def log_creation(graph: Graph) -> None:
    """Log the lines of `format_creation_lines`. Programs that parse Caffe's logs search for these lines."""
    if log.isEnabledFor(logging.INFO):
        for line in format_creation_lines(graph):
            log.info(line)


def format_creation_lines(graph: Graph) -> Iterator[str]:
    """Yield Caffe's log lines for a net. The first contains the net's text, without inserted splits."""
    message = NetParameter(
        name=graph.name, layer=[layer.definition.layer for layer in graph.layers if not layer.is_inserted_split]
    )
    roots = graph.split_roots
    for definition in message.layer:
        definition.bottom[:] = [roots.get(bottom, bottom) for bottom in definition.bottom]
    yield f"Initializing net from parameters: \n{format_text(message)}"
    memory_bytes = 0
    for layer in graph.layers:
        yield f"Creating Layer {layer.name}"
        yield from (f"{layer.name} <- {bottom}" for bottom in layer.bottoms)
        for top in layer.tops:
            yield f"{layer.name} -> {top}{' (in-place)' if top in layer.bottoms else ''}"
        yield f"Setting up {layer.name}"
        for top, weight in zip(layer.tops, layer.loss_weights, strict=True):
            shape = graph.blobs[top].shape
            memory_bytes += 4 * math.prod(shape)  # Caffe's blobs are float32
            yield f"Top shape: {''.join(f'{n} ' for n in shape)}({math.prod(shape)})"
            if weight:
                yield f"    with loss weight {weight:g}"
        yield f"Memory required for data: {memory_bytes}"
    for layer in reversed(graph.layers):
        yield f"{layer.name} {'needs' if layer.need_backward else 'does not need'} backward computation."
    yield from (f"This network produces output {name}" for name in graph.outputs)
    yield "Network initialization done."
