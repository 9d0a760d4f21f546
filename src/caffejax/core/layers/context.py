"""The argument `ctx` of layer functions (`Context`), declarations of blobs, and a layer's definition in a net."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import takewhile
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from jax import Array

from ...base.config import NetConfig
from ...base.errors import LayerError, require
from ...base.paths import find_file
from ..schema.caffe_pb2 import FillerParameter
from .bucketed_random import fold_in
from .types import LayerType, PerLayer

Phase = Literal["TRAIN", "TEST"]
Shape = tuple[int, ...]
Params = Mapping[str, Array]  # by name, in Caffe's order
Arrays = tuple[Array, ...]

# properties of a Context that depend only on layer, type and phase
_DERIVED_PROPERTIES = ("param", "settings", "_serialized_layer")
# fields of a LayerParameter that connect the layer to its net and do not affect its computation
_NET_FIELDS = (
    "name",
    "bottom",
    "top",
    "loss_weight",
    "param",
    "blobs",
    "propagate_down",
    "include",
    "exclude",
    "phase",
)


@dataclass(frozen=True)
class ParamSpec:
    """The declaration of a blob of a layer: a parameter, or a part of its state.

    Attributes:
        shape: the blob's shape, as in Caffe.
        filler: the FillerParameter of the initial values, or a function `filler(key, shape)` that returns them, such as
            `jax.nn.initializers.orthogonal()`, or None for zeros.
        learnable: False for running statistics, which are state, not parameters.
        persistent: False for state that is kept from one forward pass to the next and is not saved, such as the
            hidden state of an LSTM. Caffe does not count it as a blob. It is declared after all other blobs.
        name: the blob's key in the trees of params and state, such as "weight", or "" for its number in the layer.
        value: an array of initial values, used instead of the filler.
        rewrite: `rewrite(blob)` returns the values with which Caffe's forward pass overwrites the blob, such as
            normalized rows; training then updates these values. Forward must also apply the function; see
            `Net.rewrite_params`.
    """

    shape: Shape
    filler: Any = None
    learnable: bool = True
    persistent: bool = True
    name: str = ""
    value: Any = dataclasses.field(default=None, compare=False, repr=False)
    rewrite: Callable[[Array], Array] | None = None

    def __post_init__(self) -> None:
        is_shape = isinstance(self.shape, tuple) and all(isinstance(n, Integral) and n >= 0 for n in self.shape)
        require(is_shape, f"a ParamSpec's shape must be a tuple of non-negative integers, not {self.shape!r}")
        require(self.persistent or not self.learnable, "a ParamSpec that is not persistent cannot be learnable")
        require(
            not set(self.name) & set("./"),
            f"the name of a ParamSpec must not contain '.' or '/', as '{self.name}' does",
        )
        require(
            self.filler is None or callable(self.filler) or isinstance(self.filler, FillerParameter),
            "the filler of a ParamSpec must be a FillerParameter, such as caffejax.caffe_pb2.FillerParameter("
            f"type='xavier'), or a function of a key and a shape, not {self.filler!r}",
        )
        value_shape = None if self.value is None else tuple(np.shape(self.value))
        require(
            value_shape in (None, self.shape),
            f"the value of a ParamSpec must have the shape of the spec, {self.shape}, not {value_shape}",
        )


@dataclass(frozen=True, eq=False)
class Context:
    """The settings, phase, options and random key with which a layer computes.

    Contexts are equal if type, settings, phase, mesh axis, and the options of `config` that concern layers are equal.
    Layers with equal contexts compute the same, so they are traced once. `fold_in_args`, `propagate_down`, `blob_diffs`
    and `device_index` belong to one pass and are not compared.

    Attributes:
        layer: the LayerParameter, without its name and with empty names for its bottoms and tops.
        type: the layer's type.
        phase: "TRAIN" or "TEST".
        config: how the net computes.
        fold_in_args: the random key of one forward pass, and the integer that is folded into it to get the layer's
            `key`, or None in a pass without a random key.
        propagate_down: in the backward pass of a host layer, whether each bottom needs a gradient, or None if all do.
        blob_diffs: in the backward pass of a Python layer in pycaffe, the diffs that its blobs have so far, which the
            layer's rule returns with its changes, or None if the rule returns the diffs of this pass.
        device_index: for a host layer that is called for several devices, the index of the device, or None.
        has_own_type: whether `type` was made for this layer only; see `PerLayer`.
        num_rows: the number of valid rows of the bottoms, an int32 scalar, if zeros follow them, or None if all rows
            are valid; see `LayerTraits.counts_rows`.
        axis_name: the mesh axis whose devices share a batch (see `layers.cross_replica`), or None on one device.
        blob_names: the names of the layer's blobs in Caffe's order, each with whether it is learnable, or None to ask
            the type.
    """

    layer: Any
    type: LayerType
    phase: Phase = "TEST"
    config: NetConfig = field(default_factory=NetConfig)
    fold_in_args: tuple[Array, Any] | None = None
    propagate_down: tuple[bool, ...] | None = None
    blob_diffs: tuple[Any, ...] | None = None
    device_index: Any = None
    has_own_type: bool = False
    num_rows: Any = None
    axis_name: str | None = None
    blob_names: tuple[tuple[str, bool], ...] | None = None

    @functools.cached_property
    def param(self) -> Any:
        """The type's parameter message, where unset fields have their defaults, or None if the type has no message.

        It must not be changed: equal contexts share a trace. `call` raises an error where a function changed it.
        """
        field_name = self.type.signature.param
        return copy.deepcopy(getattr(self.layer, field_name)) if field_name else None

    @functools.cached_property
    def settings(self) -> Any:
        """The argument `p` of the type's functions: the value of `LayerType.settings`, or `param` without settings.

        Raises:
            LayerError: if settings are missing, unknown, out of range or contradictory.
        """
        read = self.type.settings
        if read is None:
            settings = self.param
        elif isinstance(read, type):  # a dataclass
            from .param_str import parse_param_str  # YAML is rarely needed

            defaults = vars(read())
            for f in fields(read):
                if f.type in (float, "float") and type(defaults[f.name]) is int:  # as `beta: float = 1`
                    defaults[f.name] = float(defaults[f.name])
            settings = read(**parse_param_str(self.layer.python_param.param_str, defaults))
        else:
            settings = self.call(read, p=self.param)
        if self.type.check is not None:
            self.call(self.type.check, p=settings)
        return settings

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        blobs: Sequence[Any] = (),
        named_blobs: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {}),
        **keywords: Any,
    ) -> Any:
        """Call a function of the layer's type with the layer's settings and the other arguments that it names.

        If its first parameter is `p`, it gets the settings, or the argument `p`, and if the next is `params` or
        `blobs`, the arrays of the layer that the caller passes as `named_blobs` and `blobs`. Its keyword-only
        parameters that are attributes of this context, such as `phase` and `key`, get their values; `ctx` is the
        context itself.
        """
        first_names, names = read_parameters(function)
        params, state = named_blobs
        p = keywords.pop("p") if "p" in keywords else self.settings
        first = {"p": p, "params": params, "blobs": tuple(blobs)}
        for name in names:
            if name not in keywords:
                keywords[name] = self if name == "ctx" else state if name == "state" else getattr(self, name)
        result = function(*map(first.__getitem__, first_names), *arguments, **keywords)
        message = self.type.signature.param
        if message and self.param.SerializeToString() != getattr(self.layer, message).SerializeToString():
            changed_by = getattr(function, "__qualname__", function)
            raise LayerError(f"{changed_by} changed its settings p, which equal layers share: change copy.deepcopy(p)")
        return result

    def convert_stored(self, blobs: Sequence[Any], shapes: Sequence[Shape]) -> tuple[Sequence[Any], str | None]:
        """Return the blobs of a file as the layer, whose blobs have these shapes, has them, and a warning or None.

        See `LayerTraits.convert_stored`.
        """
        convert = self.type.traits.convert_stored
        if convert is None:
            return blobs, None
        keywords: dict[str, Any] = {"shapes": shapes} if "shapes" in read_parameters(convert)[1] else {}
        result: tuple[Sequence[Any], str | None] = self.call(convert, blobs=blobs, **keywords)
        return result

    def evaluate(self, trait: Any) -> Any:
        """Return the value of a trait for this layer: the result of its function, or the trait itself."""
        return self.call(trait) if callable(trait) else trait

    @property
    def training(self) -> bool:
        """True if the phase is TRAIN."""
        return self.phase == "TRAIN"

    @property
    def fast(self) -> bool:
        """True if the layer uses the implementations of `core.ops` instead of the plain lowering."""
        return self.config.kernels == "fast"

    @property
    def num_tops(self) -> int:
        """The number of tops."""
        return len(self.layer.top)

    @property
    def key(self) -> Array:
        """The layer's random key in this pass. It does not change if other layers are added or removed.

        Raises:
            LayerError: if the pass has no random key.
        """
        if self.fold_in_args is None:
            raise LayerError("is random in this phase and needs a random key: pass key=jax.random.key(seed)")
        return jax.random.fold_in(*self.fold_in_args)

    def replace(self, **changes: Any) -> Context:
        """Return a copy with some fields changed, without reading the settings again.

        `layer`, `type` and `phase` must not be changed, because the settings depend on them.
        """
        new_context = replace(self, **changes)
        new_context.__dict__.update(
            {name: self.__dict__[name] for name in _DERIVED_PROPERTIES if name in self.__dict__}
        )
        return new_context

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Context) and self._comparison_key == other._comparison_key

    def __hash__(self) -> int:
        return hash(self._comparison_key)

    @functools.cached_property
    def _comparison_key(self) -> tuple[Any, ...]:
        return id(self.type), self._serialized_layer, self.phase, self.config.layer_options, self.axis_name

    @functools.cached_property
    def _serialized_layer(self) -> bytes:
        definition: bytes = self.layer.SerializeToString(deterministic=True)
        return definition


def read_parameters(function: Any) -> tuple[Sequence[str], Sequence[str]]:
    """Return which of `p`, `params` and `blobs` a function takes first, and the names of its keyword-only ones."""
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__wrapped__") or hasattr(function, "__self__"):
        parameters = list(inspect.signature(function).parameters.values())
        names = [x.name for x in parameters if x.kind is x.POSITIONAL_OR_KEYWORD]
        keyword_names = [x.name for x in parameters if x.kind is x.KEYWORD_ONLY and x.default is x.empty]
    else:
        end, defaults = code.co_argcount + code.co_kwonlyargcount, function.__kwdefaults__ or {}
        names = list(code.co_varnames[: code.co_argcount])
        keyword_names = [name for name in code.co_varnames[code.co_argcount : end] if name not in defaults]
    return [*takewhile(("p", "params", "blobs").__contains__, names[:2])], keyword_names


@dataclass(frozen=True)
class LayerDefinition:
    """A layer's full definition and the file that it comes from.

    Layers that read files or run user code need it, and error messages use it.

    Attributes:
        layer: the full LayerParameter, including the names of the layer, its bottoms and its tops.
        phase: "TRAIN" or "TEST".
        file: the path of the net's file, or None if the net is not from a file.
        config: the options of the net.
    """

    layer: Any
    phase: Phase = "TEST"
    file: str | None = None
    config: NetConfig = field(default_factory=NetConfig)

    @property
    def training(self) -> bool:
        """True if the phase is TRAIN."""
        return self.phase == "TRAIN"

    @property
    def folder(self) -> Path | None:
        """The folder of the net's file, or None."""
        return Path(self.file).parent if self.file else None

    def path(self, name: str) -> Path:
        """Return the path of a file that the net names, relative to the working directory, as in Caffe.

        If the file exists only relative to the folder of the net, the path in this folder is returned.

        Raises:
            LayerError: if the name contains a NUL character.
        """
        require("\0" not in name, f"a file name must not contain a NUL character: {name!r}")
        return find_file(name, self.folder)


def strip_net_fields(layer: Any) -> Any:
    """Return a copy of a LayerParameter for `Context.layer`, without the fields that do not affect what it computes.

    The bottoms and tops keep their number, but their names are empty.
    """
    message = copy.deepcopy(layer)
    for name in _NET_FIELDS:
        message.ClearField(name)
    message.bottom.extend([""] * len(layer.bottom))
    message.top.extend([""] * len(layer.top))
    return message


def resolve_type(context: Context, definition: LayerDefinition) -> Context:
    """Return the context with the type that the layer's `PerLayer` implementation makes for this layer.

    If the type has a different implementation, return the context unchanged.
    """
    impl = context.type.implementation
    if not isinstance(impl, PerLayer):
        return context
    layer_type = context.call(impl.make, definition)
    require(isinstance(layer_type, LayerType), f"PerLayer.make must return a LayerType, not {layer_type!r}")
    return replace(context, type=layer_type, has_own_type=True)


def fold_in_name(key: Array, name: str) -> Array:
    """Derive a random key from a key and a name."""
    return fold_in(key, hash_name(name))


def hash_name(name: str) -> np.uint32:
    """Return the CRC-32 of a name, which can be folded into a random key."""
    return np.uint32(zlib.crc32(name.encode()))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Epilogue:
    """A layer that works in place on the top of the layer before it and may be fused with that layer.

    Attributes:
        ctx: the context of the layer.
        blobs: the blobs of the layer, or values with their shapes.
    """

    ctx: Context = field(metadata={"static": True})
    blobs: tuple[Any, ...]

    def is_channel_affine(self, axis: int, channels: int) -> bool:
        """Return whether the layer computes exactly factor * x + bias for each channel.

        The channels are along `axis` of x; their number is `channels`.
        """
        affine = self.ctx.type.traits.channel_affine
        return affine is not None and self.ctx.call(
            affine.applies, [tuple(b.shape) for b in self.blobs], axis, channels
        )

    def factor_and_bias(self) -> tuple[Any, Any]:
        """Return the factor and the bias, (channels,) each, of a layer for which `is_channel_affine` is true."""
        affine = self.ctx.type.traits.channel_affine
        assert affine is not None
        factor_and_bias: tuple[Any, Any] = self.ctx.call(affine.factor_and_bias, blobs=self.blobs)
        return factor_and_bias

    @property
    def is_relu(self) -> bool:
        """True if the layer is exactly max(x, 0)."""
        return bool(self.ctx.evaluate(self.ctx.type.traits.is_relu))
