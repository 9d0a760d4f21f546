"""Python layers with Caffe's interface: instances of user classes, which read and write blobs on the host."""

from __future__ import annotations

import inspect
import json
import logging
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ....base.errors import LayerError, require
from ..context import Context, LayerDefinition, ParamSpec, Shape
from ..data_source import SourceSpec
from ..helpers import as_tuple
from ..types import HostFunction, LayerType, SourceInput
from .blob import Blob
from .layer import BlobVec, Layer
from .user_code import set_layer_attributes, with_error_note

Arrays = tuple[np.ndarray, ...]

log = logging.getLogger("caffejax.net")


def make_class_type(python_type: LayerType, definition: LayerDefinition, cls: Any, full_name: str) -> LayerType:
    """Return a layer type for one layer; its functions call the methods of a new instance of the class `cls`.

    A layer without bottoms and blobs becomes a data source, so that the rest of the net can be compiled.

    Args:
        python_type: the type `Python`, from which the new type is derived.
        definition: the layer's definition and its file.
        cls: the user's class.
        full_name: the name of the class with its module, for error messages.
    """
    layer = HostLayer(definition, cls, full_name)
    device_layers, lock = [layer], threading.Lock()
    position = layer if layer.has_position else None
    user: Any = {"instance": layer.instance, "user_tops": layer.tops, "position": position}
    if not definition.layer.bottom and not layer.params():
        source = HostSource(layer, definition.config.num_parts)
        source_input = SourceInput(lambda definition: SourceSpec(source.tops), lambda definition, tops: source, **user)
        return replace(python_type, implementation=source_input)

    def of_device(index: Any, bottoms: Sequence[Any]) -> HostLayer:  # None is the first
        with lock:
            while len(device_layers) <= int(index or 0):  # set up in the order of the devices
                device_layer = HostLayer(definition, cls, full_name)
                device_layer.params(*bottoms)
                device_layers.append(device_layer)
        return device_layers[int(index or 0)]

    def forward(blobs: Arrays, *bottoms: np.ndarray, ctx: Context) -> Arrays:
        return of_device(ctx.device_index, bottoms).forward(blobs, bottoms)

    def backward_rule(blobs: Arrays, *bottoms: np.ndarray, y: Any, dy: Any, ctx: Context) -> tuple[Any, ...]:
        device_layer = of_device(ctx.device_index, bottoms)
        return device_layer.backward(blobs, bottoms, as_tuple(dy), ctx.propagate_down, ctx.blob_diffs)

    has_rule = callable(getattr(cls, "backward", None))
    return replace(
        python_type,
        implementation=HostFunction(
            forward,
            layer.top_shapes,
            layer.params,
            may_reshape=_may_reshape(cls.forward),
            computes_in_float32=True,
            **user,
        ),
        gradient=replace(python_type.gradient, backward=backward_rule if has_rule else None),
    )


class HostLayer:
    """An instance of a user's class with its blobs. As in Caffe, they are float32 for every precision of the net.

    Attributes:
        instance: the instance of the class.
        tops: the blobs that the instance writes its tops to.
    """

    def __init__(self, definition: LayerDefinition, cls: type, full_name: str) -> None:
        self._definition, self._full_name = definition, full_name
        construct = with_error_note(cls, definition, full_name)
        self.instance = construct(definition.layer) if issubclass(cls, Layer) else construct()
        self._bottoms = [Blob() for _ in definition.layer.bottom]
        # a top with the name of its bottom is the same blob, as in Caffe
        self.tops = [
            self._bottoms[i] if definition.layer.bottom[i : i + 1] == [name] else Blob()
            for i, name in enumerate(definition.layer.top)
        ]
        self._lock = threading.RLock()
        self._is_set_up = False
        self._num_blobs = 0
        self._has_warned = False
        self._last_arguments: Arrays | None = None  # arguments of the last call of `forward`

    def params(self, *bottoms: Any) -> list[ParamSpec]:
        """Return the specs of the learnable blobs, with the initial values that `setup` wrote."""
        with self._lock:
            self._set_up([b.shape for b in bottoms])
            self._num_blobs = len(self.instance.blobs)
            return [ParamSpec(blob.shape, value=blob.data.copy()) for blob in self._blobs]

    def top_shapes(self, *bottoms: Any) -> list[Shape]:
        """Return the tops' shapes, which `setup` and `reshape` set for bottoms of these shapes."""
        shapes = [tuple(b.shape) for b in bottoms]
        with self._lock:
            self._set_up(shapes)
            is_known = [blob.shape for blob in self._bottoms] == shapes
            if bottoms and self._last_arguments is not None:
                is_known = False  # forward may have reshaped the tops
            if not is_known and all(type(n) is int for shape in shapes for n in shape):  # an export has symbolic sizes
                self._last_arguments = None  # what forward stored for backward may be for the earlier shapes
                self._reshape_bottoms(shapes)
                self._call("reshape", self._bottoms, self.tops)
            return [top.shape for top in self.tops]

    def forward(self, blobs: Arrays, bottoms: Arrays) -> Arrays:
        """Run the user's `reshape` and `forward`; return copies of the tops."""
        with self._lock:
            self._set_up([b.shape for b in bottoms])
            _write_data(self._bottoms, bottoms)
            _write_data(self._blobs, blobs)
            self._call("reshape", self._bottoms, self.tops)
            self._call("forward", self._bottoms, self.tops)
            self._last_arguments = (*blobs, *bottoms)
            self._warn_of_changes(blobs)
            return tuple(top.data.copy() for top in self.tops)

    def backward(
        self,
        blobs: Arrays,
        bottoms: Arrays,
        top_diffs: Arrays,
        propagate_down: Sequence[bool] | None,
        start_diffs: Sequence[Any] | None = None,
    ) -> tuple[Any, ...]:
        """Run the user's `backward`; return a tuple of the diffs of the blobs, then the diffs of the bottoms.

        Args:
            blobs, bottoms: the arguments of the forward pass.
            top_diffs: the diffs of the tops.
            propagate_down: for each bottom, whether it needs a diff. The diff of another bottom is None.
            start_diffs: the diffs that the blobs have when `backward` is called; default: zeros.
        """
        with self._lock:
            # the last forward pass may have had different arguments
            last = self._last_arguments
            if last is None or not all(map(_is_equal, last, (*blobs, *bottoms))):
                self.forward(blobs, bottoms)
            needs_diff = [True] * len(bottoms) if propagate_down is None else list(propagate_down)
            previous_diffs = [blob.diff.copy() for blob in self._blobs]  # in pycaffe they share the net's memory
            for blob in self._bottoms:
                blob.diff[...] = 0
            for blob, start_diff in zip(self._blobs, start_diffs or [0] * len(self._blobs), strict=True):
                blob.diff[...] = start_diff
            for top, diff in zip(self.tops, top_diffs, strict=True):
                top.diff[...] = diff
            self._call("backward", self.tops, needs_diff, self._bottoms)
            bottom_diffs = (
                b.diff.copy() if needs_bottom_diff else None
                for b, needs_bottom_diff in zip(self._bottoms, needs_diff, strict=True)
            )
            diffs = [blob.diff.copy() for blob in self._blobs]
            for blob, diff in zip(self._blobs, previous_diffs, strict=True):
                blob.diff[...] = diff
            return tuple(diffs), *bottom_diffs

    @property
    def has_position(self) -> bool:
        """True if the instance can save and restore its position in its data."""
        return all(callable(getattr(self.instance, name, None)) for name in ("get_state", "set_state"))

    def get_state(self) -> Any:
        """Return the position of the instance in its data, as plain values.

        Raises:
            LayerError: if the user's get_state returns values that JSON does not support.
        """
        state = with_error_note(self.instance.get_state, self._definition, f"{self._full_name}.get_state")()
        try:
            return json.loads(json.dumps(state))
        except (TypeError, ValueError) as error:
            raise LayerError(
                f"{self._full_name}.get_state must return plain values that JSON supports: {error}"
            ) from error

    def set_state(self, state: Any) -> None:
        """Move the instance to a position that `get_state` returned."""
        with_error_note(self.instance.set_state, self._definition, f"{self._full_name}.set_state")(state)

    @property
    def _blobs(self) -> list[Blob]:
        return list(self.instance.blobs[: self._num_blobs])  # a script may have added blobs, which are only saved

    def _set_up(self, bottoms: Sequence[Shape]) -> None:
        if self._is_set_up:
            return
        set_layer_attributes(self.instance, self._definition)
        if not isinstance(getattr(self.instance, "blobs", None), BlobVec):
            self.instance.blobs = BlobVec()
        self._reshape_bottoms(bottoms)
        self._call("setup", self._bottoms, self.tops)
        self._call("reshape", self._bottoms, self.tops)
        self._is_set_up = True

    def _reshape_bottoms(self, shapes: Sequence[Shape]) -> None:
        for blob, shape in zip(self._bottoms, shapes, strict=True):
            blob.reshape(*shape)

    def _call(self, method: str, *args: Any) -> None:
        function = getattr(self.instance, method, None)
        if function is not None:  # the class may lack setup and reshape
            with_error_note(function, self._definition, f"{self._full_name}.{method}")(*args)

    def _warn_of_changes(self, blobs: Arrays) -> None:
        if self._has_warned or all(
            b.is_shared or _is_equal(b.data, np.float32(value)) for b, value in zip(self._blobs, blobs, strict=True)
        ):
            return
        self._has_warned = True
        log.warning(
            "Layer '%s' (Python): %s.forward changes the layer's blobs; the changes are discarded, because only the "
            "solver may change parameters",
            self._definition.layer.name,
            self._full_name,
        )


class HostSource:
    """A Python layer without bottoms as a data source. It wraps the layer's only instance, so closing has no effect.

    Args:
        layer: the layer.
        num_parts: the number of devices among which each of the layer's batches is divided, in order.
    """

    def __init__(self, layer: HostLayer, num_parts: int = 1) -> None:
        self._layer, self._num_parts = layer, num_parts
        self._parts: list[Arrays] = []  # of the last batch, those that are still to be returned

    @property
    def tops(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """The shapes and dtypes of a part's tops after `setup`. The shapes of a batch may differ from them.

        Raises:
            LayerError: if the number of parts does not divide the examples.
        """
        shapes = self._layer.top_shapes()
        self._check_division(shapes)
        if self._num_parts > 1:
            shapes = [(shape[0] // self._num_parts, *shape[1:]) for shape in shapes]
        return tuple(jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes)

    def __next__(self) -> Arrays:
        """Return the next part of the tops. The layer runs once for all parts of a batch."""
        if not self._parts:
            tops = self._layer.forward((), ())
            self._check_division([top.shape for top in tops])
            parts = [np.split(top, self._num_parts) if self._num_parts > 1 else [top] for top in tops]
            self._parts = list(zip(*parts, strict=True))
        return self._parts.pop(0)

    def _check_division(self, shapes: Sequence[Shape]) -> None:
        for i, shape in enumerate(shapes):
            require(
                self._num_parts == 1 or (shape and shape[0] % self._num_parts == 0),
                f"top {i} has shape {tuple(shape)}, whose examples cannot be divided among {self._num_parts} devices; "
                f"return a multiple of {self._num_parts} examples, or let each device process a full batch",
            )

    def get_state(self) -> Any:
        """Return the layer's position in its data, or None if the layer does not support positions."""
        return self._layer.get_state() if self._layer.has_position else None

    def set_state(self, state: Any) -> None:
        """Move to a position that `get_state` returned, if the layer supports positions."""
        self._parts = []
        if state is not None and self._layer.has_position:
            self._layer.set_state(state)

    def close(self) -> None:
        """Do nothing."""


def _may_reshape(forward: Any) -> bool:
    """Return whether `top[0].reshape` or the like is in the source of a method forward(self, bottom, top)."""
    try:
        *_, top = inspect.signature(forward).parameters
        return re.search(rf"\b{top}\[[^]]*\]\.reshape\(", inspect.getsource(forward)) is not None
    except (OSError, TypeError, ValueError):  # there is no source
        return False


def _write_data(blobs: Sequence[Blob], arrays: Arrays) -> None:
    for blob, array in zip(blobs, arrays, strict=True):
        if not blob.is_shared:  # otherwise it has the array
            blob.reshape(*array.shape)
            blob.data[...] = array


def _is_equal(x: Any, y: Any) -> bool:
    return x is y or np.array_equal(x, y, equal_nan=True)
