"""Split layers for blobs with several readers, named and placed as Caffe does.

JAX needs no copies; the splits give each reader a blob of its own, which is what Caffe's rules on gradients
and in-place layers speak about. They cost nothing once compiled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ..schema.caffe_pb2 import LayerParameter

_Top = tuple[int, int]  # index of the layer, index of its top
Sources = dict[tuple[int, int], _Top]  # (index of the layer, index of its bottom): the top that it reads
Missing = tuple[int, int, str]  # index of a layer, index of its bottom, the blob that nothing before it produces


def insert_splits(layers: Sequence[LayerParameter], sources: Sources) -> list[tuple[LayerParameter, int | None]]:
    """Copy the layers with splits between them; each with its index among the layers, None for one inserted.

    A loss weight on a blob that others read counts as one more reader, the first.

    Args:
        layers: the net's layers, in order.
        sources: what `find_sources` gave for them; bottoms without a source stay as they are.
    """
    readers: dict[_Top, int] = defaultdict(int)
    for source in sources.values():
        readers[source] += 1
    weights: dict[_Top, float] = {
        (i, j): weight
        for i, layer in enumerate(layers)
        for j, (weight, _) in enumerate(zip(layer.loss_weight, layer.top, strict=False))
        if weight
    }
    for top in weights:
        readers[top] += 1

    served: dict[_Top, int] = defaultdict(int)
    result: list[tuple[LayerParameter, int | None]] = []
    for i, original in enumerate(layers):
        layer = LayerParameter()
        layer.CopyFrom(original)
        for j in range(len(layer.bottom)):
            read = sources.get((i, j))
            if read is not None and readers[read] > 1:
                layer.bottom[j] = _split_blob(layers, read, served[read])
                served[read] += 1
        result.append((layer, i))
        for j in range(len(layer.top)):
            if readers[i, j] > 1:
                result.append((_split(layers, (i, j), readers[i, j], weights.get((i, j), 0)), None))
                if (i, j) in weights:
                    layer.ClearField("loss_weight")
                    served[i, j] += 1
    return result


def find_sources(layers: Sequence[LayerParameter]) -> tuple[Sources, list[Missing]]:
    """Find the top that each bottom reads (the last of that name before it), and the bottoms that read none.

    Of the latter there is the first for each name; later readers of it have no source either.
    """
    latest: dict[str, _Top | None] = {}
    sources: Sources = {}
    missing: list[Missing] = []
    for i, layer in enumerate(layers):
        for j, name in enumerate(layer.bottom):
            if name not in latest:
                missing.append((i, j, name))
                latest[name] = None
            elif (source := latest[name]) is not None:
                sources[i, j] = source
        for j, name in enumerate(layer.top):
            latest[name] = (i, j)
    return sources, missing


def _split_name(layers: Sequence[LayerParameter], top: _Top) -> str:
    layer = layers[top[0]]
    return f"{layer.top[top[1]]}_{layer.name}_{top[1]}_split"


def _split_blob(layers: Sequence[LayerParameter], top: _Top, k: int) -> str:
    return f"{_split_name(layers, top)}_{k}"


def _split(layers: Sequence[LayerParameter], top: _Top, n: int, loss_weight: float) -> LayerParameter:
    split = LayerParameter(name=_split_name(layers, top), type="Split")
    split.bottom.append(layers[top[0]].top[top[1]])
    split.top.extend(_split_blob(layers, top, k) for k in range(n))
    if loss_weight:
        split.loss_weight.extend([loss_weight] + [0] * (n - 1))
    return split
