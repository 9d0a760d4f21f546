"""A net as a model: its layers one after the other, each blob under its name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from onnx import ModelProto, helper

from ..._version import __version__
from ...errors import CaffejaxError, GraphError, Problem
from ...execution.schedule import padded_blobs
from ...graph import Layer
from ...layers.rows import axis_of_rows_in, rows_axis
from ..preprocessing import Preprocessing
from ..subject import Subject
from .builder import Builder, value_info
from .converting import convert, sizes
from .layering import add_layer, add_scaled, joins, may_be_scaled
from .values import Value, computed


def assembled(
    subject: Subject,
    inputs: Mapping[str, jax.ShapeDtypeStruct],
    opset: int,
    preprocessing: Preprocessing | None,
) -> ModelProto:
    """Return a net as a model.

    Args:
        subject: the net with its weights.
        inputs: the inputs' shapes, symbolic sizes among them.
        opset: the version of ONNX's operators.
        preprocessing: what makes an input of images, which are then taken in its place.

    Raises:
        GraphError: naming every layer that cannot be exported.
    """
    return _Assembly(subject, inputs, opset, preprocessing).model()


class _Assembly:
    def __init__(
        self,
        subject: Subject,
        inputs: Mapping[str, jax.ShapeDtypeStruct],
        opset: int,
        preprocessing: Preprocessing | None,
    ) -> None:
        self.subject = subject
        blobs = [top for layer in subject.layers for top in layer.tops]
        self.builder = Builder(opset, [*inputs, *blobs])
        self.values: dict[str, Value] = {}
        self.readers = Counter(name for layer in subject.layers for name in layer.bottoms)
        self.readers.update(subject.outputs)
        begun = padded_blobs(subject.layers)
        self.trimmed = {name: begun[name] for name in subject.outputs if name in begun}
        self.problems: list[Problem] = []
        self.fed: list[Value] = []
        for name, blob in inputs.items():
            self._feed(name, blob, preprocessing if preprocessing and preprocessing.blob == name else None)

    def _feed(self, name: str, blob: jax.ShapeDtypeStruct, preprocessing: Preprocessing | None) -> None:
        given = blob if preprocessing is None else preprocessing.images(blob)
        fed = computed(name, sizes(given.shape), given.dtype)
        self.fed.append(fed)
        for axis, n in enumerate(fed.shape):
            if not isinstance(n, int):
                self.builder.sizes.sources.setdefault(str(n), (name, axis))
        self.values[name] = fed
        if preprocessing is not None:
            with self.builder.of_layer(f"preprocess/{name}"):
                (made,) = convert(self.builder, preprocessing, [fed])
                self.values[name] = self.builder.expanded(made)

    def model(self) -> ModelProto:
        """Return the model."""
        layers = list(self.subject.layers)
        while layers:
            layer = layers.pop(0)
            if any(name not in self.values for name in layer.bottoms):
                continue  # it follows one that cannot be exported
            following = self._joining(layer, layers)
            try:
                with layer.located(), self.builder.of_layer(layer.key):
                    self._add(layer, following)
            except CaffejaxError as error:
                self.problems += error.problems
            if following is not None:
                layers.remove(following)
        if self.problems:
            raise GraphError(self.problems)
        return self._proto([self._output(name) for name in self.subject.outputs])

    def _joining(self, layer: Layer, later: Sequence[Layer]) -> Layer | None:
        """Return the layer that becomes one node with this one, as a Scale does: the only reader of its top."""
        x = self.values[layer.bottoms[0]] if layer.bottoms else None
        if x is None or len(layer.tops) != 1 or self.readers[layer.tops[0]] != 1:
            return None
        if not may_be_scaled(layer, self._arrays(layer), x):
            return None
        reader = next((other for other in later if layer.tops[0] in other.bottoms), None)
        return reader if reader is not None and joins(reader, self._arrays(reader), x.shape[1]) else None

    def _add(self, layer: Layer, following: Layer | None) -> None:
        start, bottoms = len(self.builder.nodes), [self.values[name] for name in layer.bottoms]
        if following is None:
            names, tops = layer.tops, add_layer(self.builder, layer, self._arrays(layer), bottoms)
        else:
            by = self._arrays(following)
            names = following.tops
            tops = add_scaled(self.builder, layer, self._arrays(layer), bottoms[0], following, by)
        renamed: dict[str, str] = {}
        for blob, top in zip(names, tops, strict=True):
            wanted = f"{blob}/padded" if blob in self.trimmed else blob
            name = self.builder.whole(top)
            if name not in renamed and self.builder.rename(start, name, wanted):
                renamed[name] = wanted
            else:
                self._node("Identity", [renamed.get(name, name)], wanted)
            self.values[blob] = computed(wanted, top.shape, top.dtype)

    def _node(self, op: str, inputs: Sequence[str], output: str) -> None:
        self.builder.rename(len(self.builder.nodes), self.builder.node(op, inputs), output)

    def _arrays(self, layer: Layer) -> list[np.ndarray]:
        return [np.asarray(array, np.float32) for array in self.subject.arrays(layer)]

    def _output(self, name: str) -> Value:
        """Return an output, without rows of padding."""
        value = self.values[name]
        if name not in self.trimmed:
            return value
        root, b = self.values[self.trimmed[name]], self.builder
        like, blob = (jax.ShapeDtypeStruct(v.shape, v.dtype) for v in (root, value))
        if (axis := axis_of_rows_in(blob, like)) is None:
            self._node("Identity", [b.whole(value)], name)
            return computed(name, value.shape, value.dtype)
        with b.of_layer(f"trim/{name}"):
            (rows,) = convert(b, _rows, [root])
            end = b.reshaped(b.cast(b.whole(rows), np.int64), (1,))
            self._node("Slice", [b.whole(value), b.integers([0]), end, b.integers([axis])], name)
        return computed(name, (*value.shape[:axis], "rows", *value.shape[axis + 1 :]), value.dtype)

    def _proto(self, outputs: Sequence[Value]) -> ModelProto:
        b, graph = self.builder, self.subject.net.graph
        given = {str(v.what) for v in (*self.fed, *outputs)}
        made = [v for v in self.values.values() if v.what not in given]
        proto = helper.make_graph(
            [*b.sizes.nodes, *b.nodes],
            graph.name or "net",
            [value_info(v) for v in self.fed],
            [value_info(v) for v in outputs],
            list(b.initializers.values()),
            value_info=[value_info(v) for v in made],
        )
        model = helper.make_model(
            proto,
            opset_imports=[helper.make_opsetid("", b.opset)],
            producer_name="caffejax",
            producer_version=__version__,
        )
        model.ir_version = helper.find_min_ir_version_for(model.opset_import)
        return model


def _rows(top: Any) -> jax.Array:
    """Count the rows of a padded top that are none of padding, as `layers.rows.count` does."""
    first = top if top.ndim == 1 else top[(slice(None),) * rows_axis(top) + (slice(None), 0)]
    return jnp.max(jnp.sum(first >= 0, axis=rows_axis(top), dtype=jnp.int32), initial=0)
