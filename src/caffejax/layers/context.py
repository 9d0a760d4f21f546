"""What a layer is given and what it owns: its context, its blobs, the source it reads."""

from __future__ import annotations

import dataclasses
import functools
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import jax
import numpy as np

from ..errors import LayerError
from ..kernels import Kernels
from ..paths import find
from ..precision import Precision

if TYPE_CHECKING:
    from .registry import LayerType

Phase = Literal["TRAIN", "TEST"]
Shape = tuple[int, ...]

_NAMES = ("name", "bottom", "top", "param", "blobs", "include", "exclude")  # what computes nothing


@dataclass(frozen=True)
class Blob:
    """A blob that a layer owns.

    Attributes:
        shape: Caffe's shape of it.
        filler: the FillerParameter that starts it; None leaves it zero.
        learnable: False for running statistics: they are state, not parameters.
        persistent: False for what one forward pass leaves to the next, such as the hidden state of an LSTM. It
            is state that Caffe does not count as a blob: in no list and in no weight file. Declared last.
        value: an array that starts it, in place of the filler.
    """

    shape: Shape
    filler: Any = None
    learnable: bool = True
    persistent: bool = True
    value: Any = dataclasses.field(default=None, compare=False, repr=False)


class Position(Protocol):
    """A place in some data, which can be kept and restored."""

    def get_state(self) -> Any:
        """The place of the next unread example, as plain values."""
        ...

    def set_state(self, state: Any) -> None:
        """Goes to a place that `get_state` gave."""
        ...


class Source(Position, Protocol):
    """What feeds a data layer: batches in order, from a position that can be kept and restored."""

    @property
    def tops(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Shape and dtype of each top."""
        ...

    def __next__(self) -> tuple[np.ndarray, ...]:
        """The next batch, one array per top. A source never ends: it wraps round as Caffe's do.

        Where the layer's type has a `finish`, that makes the tops of them."""
        ...

    def close(self) -> None:
        """Lets go of files and workers."""
        ...


@dataclass(frozen=True)
class Context:
    """All that a layer may look at besides its arrays.

    Attributes:
        layer: the whole LayerParameter (name, tops, loss_param, ...).
        type: the layer's type.
        phase: "TRAIN" or "TEST".
        base_key: the key of this forward pass and a number for the layer in it, or None; see `key`.
        seed: for what is random on the host (shuffling, crops).
        workers: how many processes read the data of a layer; 0 for threads of this one.
        kernels: whether operations take their fast formulation; see `fast`.
        precision: the floats that the net computes in; see `layers.precision`.
        skip_bad: whether an image that cannot be decoded is replaced by the next one, with a warning.
        folder: where the net's file lies; see `path`.
        name: the layer's name made unique, where a net repeats it.
        propagate_down: for which bottoms a gradient is wanted; None for all.
        kept: what a host layer keeps from one forward pass of its net to the next.
    """

    layer: Any
    type: LayerType
    phase: Phase = "TEST"
    base_key: tuple[jax.Array, Any] | None = None
    seed: int = 0
    workers: int = 0
    kernels: Kernels = "fast"
    precision: Precision = "float32"
    skip_bad: bool = False
    folder: Path | None = None
    name: str = ""
    propagate_down: tuple[bool, ...] | None = None
    kept: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @functools.cached_property
    def param(self) -> Any:
        """The type's own parameter message, defaults included."""
        return getattr(self.layer, self.type.param) if self.type.param else None

    @property
    def training(self) -> bool:
        """Whether the phase is TRAIN."""
        return self.phase == "TRAIN"

    @property
    def fast(self) -> bool:
        """Whether to compute with what `caffejax.kernels` has, or by the plain lowering."""
        return self.kernels == "fast"

    @property
    def n_tops(self) -> int:
        """How many tops the layer has."""
        return len(self.layer.top)

    @property
    def key(self) -> jax.Array:
        """This layer's random key, from its name: other layers coming or going do not change it."""
        if self.base_key is None:
            raise LayerError("is random here and needs a key: pass key=jax.random.key(seed)")
        return jax.random.fold_in(*self.base_key)

    def with_key(self, key: Any) -> Context:
        """The same layer in a forward pass with another key, or with the `base_key` of another context."""
        if key is not None and not isinstance(key, tuple):
            key = key, _checksum(self.name or self.layer.name)
        return replace(self, base_key=key)

    def in_pass(self, key: jax.Array | None, propagate_down: tuple[bool, ...]) -> Context:
        """The same layer in a forward pass, and the backward pass after it."""
        return replace(self.with_key(key), propagate_down=propagate_down)

    @functools.cached_property
    def unnamed(self) -> Context:
        """What the layer computes, without a name, blobs and a key: equal for layers that do the same."""
        message = type(self.layer)()
        message.CopyFrom(self.layer)
        for name in _NAMES:
            message.ClearField(name)
        message.bottom.extend([""] * len(self.layer.bottom))
        message.top.extend([""] * len(self.layer.top))
        return replace(self, layer=message, name="", base_key=None)

    def __reduce__(self) -> Any:
        # the type by name, settled anew: what a layer's own parameters make of it may be a function or an object
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("type", "kept")}
        return _restored, (self.type, fields)

    def __hash__(self) -> int:
        return hash((self.layer.SerializeToString(deterministic=True), self.type.name, self.phase, self.propagate_down))

    def in_phase(self, phase: Phase) -> Context:
        """The same layer in another phase."""
        return replace(self, phase=phase).settled()

    def settled(self) -> Context:
        """The same layer with the type that its own parameters make of it."""
        return self if self.type.specialise is None else replace(self, type=self.type.specialise(self))

    def path(self, name: str) -> Path:
        """A path that the net names: as in Caffe from the working directory, else from the net's folder."""
        return find(name, self.folder)


def _restored(kind: LayerType, fields: dict[str, Any]) -> Context:
    return Context(type=kind, **fields).settled()


def name_key(key: jax.Array, name: str) -> jax.Array:
    """A key of its own for a name, whatever other names there are."""
    return jax.random.fold_in(key, _checksum(name))


def _checksum(name: str) -> np.uint32:
    return np.uint32(zlib.crc32(name.encode()))
