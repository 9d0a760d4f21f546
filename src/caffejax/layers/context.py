"""What a layer is given and what it owns: what it computes with, where it stands, its params."""

from __future__ import annotations

import dataclasses
import functools
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from ..errors import LayerError, require
from ..options import Reading, Run
from ..paths import find
from .types import LayerType, PerLayer

Phase = Literal["TRAIN", "TEST"]
Shape = tuple[int, ...]

_FROM_MESSAGE = ("param", "settings", "_definition")  # properties of a Context that layer, type and phase determine
# of a LayerParameter, what says how a layer is wired into its net and not what it computes
_WIRING = ("name", "bottom", "top", "loss_weight", "param", "blobs", "propagate_down", "include", "exclude", "phase")


@dataclass(frozen=True)
class ParamSpec:
    """A param that a layer owns, or a piece of its state; a blob of the layer, in Caffe's words.

    Attributes:
        shape: Caffe's shape of it.
        filler: the FillerParameter that starts it; None leaves it zero.
        learnable: False for running statistics: they are state, not parameters.
        persistent: False for what one forward pass leaves to the next, such as the hidden state of an LSTM. It
            is state that Caffe does not count as a blob: in no list and in no weight file. Declared last.
        value: an array that starts it, in place of the filler.
        rewritten: what a forward pass of Caffe makes of it, in its place, such as rows of length 1: training goes on
            from there. Forward itself has to do it, too; see `Net.rewritten`.
    """

    shape: Shape
    filler: Any = None
    learnable: bool = True
    persistent: bool = True
    value: Any = dataclasses.field(default=None, compare=False, repr=False)
    rewritten: Callable[[jax.Array], jax.Array] | None = None

    def __post_init__(self) -> None:
        whole = isinstance(self.shape, tuple) and all(isinstance(n, Integral) and n >= 0 for n in self.shape)
        require(whole, f"a ParamSpec's shape must be a tuple of whole numbers from 0 on, not {self.shape!r}")
        require(self.persistent or not self.learnable, "a ParamSpec that is not persistent cannot be learnable")
        given = None if self.value is None else tuple(np.shape(self.value))
        require(given in (None, self.shape), f"a ParamSpec of shape {self.shape} has a value of shape {given}")


@dataclass(frozen=True, eq=False)
class Context:
    """Everything that a layer computes with besides its arrays.

    Contexts are equal if layers compute the same in them: by type, settings, phase, mesh axis, and the options of `run`
    that concern layers. Equal contexts share one trace. `base_key` and `propagate_down` belong to one pass and do not
    take part in the comparison.

    Attributes:
        layer: the LayerParameter without its wiring: no name, and nameless bottoms and tops in their numbers.
        type: the layer's type.
        phase: "TRAIN" or "TEST".
        run: how the net computes.
        base_key: the random key of one forward pass and the layer's number in it, or None; see `key`.
        propagate_down: in the backward pass of a host layer, whether each bottom needs a gradient; None if all do.
        per_layer: whether the type was made for this layer alone, see `PerLayer`.
        axis: the mesh axis whose devices share a batch, see `layers.cross_replica`; None on one device.
    """

    layer: Any
    type: LayerType
    phase: Phase = "TEST"
    run: Run = field(default_factory=Run)
    base_key: tuple[jax.Array, Any] | None = None
    propagate_down: tuple[bool, ...] | None = None
    per_layer: bool = False
    axis: str | None = None

    @functools.cached_property
    def param(self) -> Any:
        """The type's own parameter message, defaults included."""
        field = self.type.signature.param
        return getattr(self.layer, field) if field else None

    @functools.cached_property
    def settings(self) -> Any:
        """The settings as `LayerType.settings` reads them from the message, once; None if the type reads none.

        Raises:
            LayerError: for settings that are missing, out of range or contradictory.
        """
        return None if self.type.settings is None else self.type.settings(self)

    @property
    def training(self) -> bool:
        """Whether the phase is TRAIN."""
        return self.phase == "TRAIN"

    @property
    def fast(self) -> bool:
        """Whether to compute with what `caffejax.kernels` has, or by the plain lowering."""
        return self.run.kernels == "fast"

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

    def with_key(self, base_key: tuple[jax.Array, Any] | None) -> Context:
        """Return the context of a forward pass with this key and number of the layer."""
        return self.replace(base_key=base_key)

    def plain(self) -> Context:
        """Return the context with the plain lowering."""
        return self.replace(run=self.run.plain())

    def replace(self, **changes: Any) -> Context:
        """Return the context with fields changed, other than layer and type; what was read from the message is kept."""
        context = replace(self, **changes)
        context.__dict__.update({name: self.__dict__[name] for name in _FROM_MESSAGE if name in self.__dict__})
        return context

    def with_settings(self, settings: Any) -> Context:
        """Return the context with other settings, for types that compute with the functions of another type."""
        context = replace(self)
        context.__dict__["settings"] = settings
        return context

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Context) and self._computation == other._computation

    def __hash__(self) -> int:
        return hash(self._computation)

    @functools.cached_property
    def _computation(self) -> tuple[Any, ...]:
        return id(self.type), self._definition, self.phase, self.run.of_layers, self.axis

    @functools.cached_property
    def _definition(self) -> bytes:
        found: bytes = self.layer.SerializeToString(deterministic=True)
        return found


@dataclass(frozen=True)
class Site:
    """Where a layer stands: for those that read files, run users' code, or tell users what is wrong.

    Attributes:
        layer: the whole LayerParameter.
        phase: "TRAIN" or "TEST".
        file: where the net came from, if from a file.
        reading: how data is read.
    """

    layer: Any
    phase: Phase = "TEST"
    file: str | None = None
    reading: Reading = field(default_factory=Reading)

    @property
    def training(self) -> bool:
        """Whether the phase is TRAIN."""
        return self.phase == "TRAIN"

    @property
    def folder(self) -> Path | None:
        """Where the net's file lies."""
        return Path(self.file).parent if self.file else None

    def path(self, name: str) -> Path:
        """Find a path that the net names: as in Caffe from the working directory, else from the net's folder.

        Raises:
            LayerError: for what no file can be called.
        """
        require("\0" not in name, f"no file can be called {name!r}")
        return find(name, self.folder)


def without_wiring(layer: Any) -> Any:
    """Return a LayerParameter as a `Context` has it."""
    message = type(layer)()
    message.CopyFrom(layer)
    for name in _WIRING:
        message.ClearField(name)
    message.bottom.extend([""] * len(layer.bottom))
    message.top.extend([""] * len(layer.top))
    return message


def settled(context: Context, site: Site) -> Context:
    """Give the context the type that the layer's own parameters make of it."""
    runs = context.type.implementation
    if not isinstance(runs, PerLayer):
        return context
    made = runs.make(context, site)
    require(isinstance(made, LayerType), f"the type's PerLayer must make a LayerType, not {made!r}")
    return replace(context, type=made, per_layer=True)


def name_key(key: jax.Array, name: str) -> jax.Array:
    """Derive a key of its own for a name, whatever other names there are."""
    return jax.random.fold_in(key, name_number(name))


def name_number(name: str) -> np.uint32:
    """Return a number for a name, to be folded into a key."""
    return np.uint32(zlib.crc32(name.encode()))


@dataclass(frozen=True)
class Epilogue:
    """A layer that works in place on the top of the one before it.

    Attributes:
        ctx: its context.
        blobs: its blobs, or what has their shapes.
    """

    ctx: Context
    blobs: tuple[Any, ...]

    def is_by_channel(self, axis: int, channels: int) -> bool:
        """Return whether it is no more than a factor and a bias for each channel."""
        known = self.ctx.type.traits.by_channel
        return known is not None and known.applies(self.ctx, [tuple(b.shape) for b in self.blobs], axis, channels)

    def factor_and_bias(self) -> tuple[Any, Any]:
        """Return these, (channels,) each, of a layer that is no more."""
        known = self.ctx.type.traits.by_channel
        assert known is not None
        found: tuple[Any, Any] = known.factor_and_bias(self.ctx, self.blobs)
        return found

    @property
    def is_relu(self) -> bool:
        """Whether it is max(x, 0) and no more."""
        known = self.ctx.type.traits.is_relu
        return known is not None and known(self.ctx)
