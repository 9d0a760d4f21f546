"""Layers as functions of arrays, without a prototxt around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack, cast

import jax
import numpy as np
from google.protobuf.message import Message

from ...base.config import NetConfig, Options, resolve_options
from ...base.errors import CaffejaxError, LayerError, SchemaError, WeightsError, describe_type, is_integer, require
from ...base.variables import Variables
from ..graph import Layer
from ..layers import Declaration, HostFunction, LayerType, Variants
from ..layers import layer_type as find_type
from ..layers.context import Phase, Shape
from ..layers.python import name_python_layer
from ..schema.caffe_pb2 import LayerParameter, NetParameter
from ..schema.text import parse_valid_fields
from .net import Net
from .net_arguments import check_key, check_selection, is_numeric

_MAX_NETS = 64  # of one layer, for different shapes


def layer(
    layer_type: LayerType | Declaration[..., Any] | str | Callable[..., Any],
    param: str | Message = "",
    phase: Phase = "TEST",
    **options: Unpack[Options],
) -> LayerFunction:
    """Return a layer as a pure function of arrays, which every transformation of JAX takes.

        lrn = caffejax.layer("LRN", "local_size: 5")
        y = lrn(x)

        conv = caffejax.layer("Convolution", "num_output: 8 kernel_size: 3")
        params, _ = conv.init(jax.random.key(0), x.shape)  # {"weight": ..., "bias": ...}
        y = conv(params, x)

        norm = caffejax.layer("BatchNorm", phase="TRAIN")
        y, state = norm(x, state=norm.init(jax.random.key(0), x.shape).state)

    A layer that runs on the host is a callback in code that JAX traces, and one that only writes does nothing. Tops
    whose number of rows depends on values have the rows that `Net.apply` returns.

    Args:
        layer_type: the name of a registered type, the type, its declaration, or a Python layer: a class or function at
            the top level of a module.
        param: the fields of the type's own message, such as "local_size: 5", or of LayerParameter, such as
            'lrn_param { local_size: 5 }', as text or as a message. The names of bottoms and tops do not matter, but
            the number of tops does; by default it is the smallest that the type has.
        phase: "TRAIN" or "TEST".
        options: fields of `NetConfig`, such as `precision` and `kernels`.

    Raises:
        CaffejaxError: if the phase or options are invalid.
        GraphError: if the type is unknown.
        LayerError: if the type computes nothing, as data layers and Input, or `param` is of another type.
        SchemaError: if the text has problems. The message has every problem.
    """
    definition = parse_layer(layer_type, param)
    kind = find_type(definition.type)
    _check_computes(kind)
    settings = {
        k: v for k, v in options.items() if k not in NetConfig.__dataclass_fields__ and k in _list_settings(kind)
    }
    require(not settings, f"{', '.join(settings)}: {_as_text(kind, settings)}")
    check_selection(phase=phase, level=0, stages=())
    return LayerFunction(definition, phase, resolve_options(NetConfig(), options))


@dataclass(frozen=True, eq=False)
class LayerFunction:
    """A layer as a pure function; see `layer`.

    Attributes:
        definition: the layer's LayerParameter.
        phase: "TRAIN" or "TEST".
        config: the options.
    """

    definition: LayerParameter
    phase: Phase
    config: NetConfig
    _nets: dict[tuple[Shape, ...], Net] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        return f"layer {self.definition.type} in phase {self.phase}"

    def init(self, key: jax.Array, *shapes: Any) -> Variables:
        """Create the layer's initial params and state, `{name: array}` each, float32, with its fillers.

        Args:
            key: a random key.
            shapes: the shape of each bottom, or an array of this shape.

        Raises:
            CaffejaxError: if the key is missing, the layer does not accept these shapes, or settings are invalid.
        """
        try:
            check_key(key)
        except CaffejaxError as error:
            raise LayerError(f"call it as init(key, *shapes), with a random key before the shapes: {error}") from None
        net, layer = self._connect(tuple(map(_get_shape, shapes)))
        params, state = cast(Any, net.init(key))
        return Variables(params.get(layer.key, {}), state.get(layer.key, {}))

    def __call__(self, *arrays: Any, state: Mapping[str, Any] | None = None, key: jax.Array | None = None) -> Any:
        """Compute the tops.

        Args:
            arrays: the params, `{name: array}`, if the layer has any, and the bottoms.
            state: running statistics and recurrent state, `{name: array}`.
            key: a random key, if the layer is random in this phase.

        Returns:
            The top, or a tuple of tops unless there is exactly one. With `state`, a pair of this and the new state.

        Raises:
            CaffejaxError: if arguments are missing, unknown, or of a wrong shape or type, or settings are invalid. The
                message names them.
            DataError: if a label of a loss is not a class. In code that JAX traces, losses are NaN instead.
        """
        has_params = bool(arrays) and isinstance(arrays[0], Mapping)
        params, bottoms = (arrays[0], arrays[1:]) if has_params else ({}, arrays)
        for i, bottom in enumerate(bottoms):
            if not is_numeric(bottom):
                raise LayerError(
                    f"bottom {i} must be an array of numbers, not {describe_type(bottom)}; the arguments are the "
                    "layer's params, a dict, if it has any, and its bottoms"
                )
        net, layer = self._connect(tuple(map(np.shape, bottoms)))
        with layer.locate_errors():
            for learnable, is_passed, remedy in (
                (True, has_params, "params: pass them, a dict of arrays, before the bottoms"),
                (False, state is not None, "state: pass it, a dict of arrays, as state="),
            ):
                names = [repr(p.slot.name) for p in layer.all_params if p.spec.learnable == learnable]
                require(is_passed or not names, f"has {', '.join(names)} as {remedy}")
        if layer.type.on_host and not layer.tops:  # it would only write
            return () if state is None else ((), state)
        inputs = dict(zip(layer.bottoms, bottoms, strict=True))
        if layer.type.signature.loss:  # metrics count other labels in their own ways
            net.check_labels(inputs)
        try:
            blobs, states = net.apply({layer.key: params}, {layer.key: state or {}}, inputs, key, blobs=layer.tops)
        except WeightsError as error:  # the bottom may be what is wrong
            shapes = ", ".join(str(np.shape(bottom)) for bottom in bottoms)
            raise WeightsError(f"{error}, with bottoms of shape {shapes}") from None
        tops = tuple(blobs[name] for name in layer.tops)
        result = tops[0] if len(tops) == 1 else tops
        return result if state is None else (result, states.get(layer.key, {}))

    def _connect(self, shapes: tuple[Shape, ...]) -> tuple[Net, Layer]:
        """Return a net of Input layers with these shapes and the layer, and the layer."""
        if shapes not in self._nets:
            definition = name_blobs(self.definition, len(shapes))
            net = make_layer_net(definition, shapes, self.phase, self.config)
            layer = net.graph.layers[-1]
            _check_computes(layer.type)
            function = layer.type.implementation
            if isinstance(function, HostFunction) and function.output is not None and layer.tops:
                with layer.locate_errors():
                    raise LayerError(f"writes '{function.output.pattern}', which a function does not: unset its output")
            if len(self._nets) == _MAX_NETS:
                self._nets.clear()
            self._nets[shapes] = net
        net = self._nets[shapes]
        return net, net.graph.layers[-1]


def parse_layer(
    layer_type: LayerType | Declaration[..., Any] | str | Callable[..., Any], param: str | Message
) -> LayerParameter:
    """Return the definition of a layer, with its type and a name; for arguments and errors, see `layer`."""
    definition = LayerParameter()
    if isinstance(layer_type, Declaration):
        layer_type = layer_type.type
    if not isinstance(layer_type, LayerType | str):
        require(callable(layer_type), f"a layer's type must be a name, a LayerType or a class, not {layer_type!r}")
        layer_type = name_python_layer(definition, layer_type)
    name = layer_type.name if isinstance(layer_type, LayerType) else layer_type
    kind = find_type(name, with_variants=True)
    own_messages = {type(getattr(definition, field)): field for field in _list_params(kind)}
    try:
        message = _parse_text(param, own_messages) if isinstance(param, str) else param
    except SchemaError as error:
        if isinstance(kind.settings, type):
            raise LayerError(f"{error}; write the settings of '{name}' as param_str: {param!r}") from None
        raise
    if type(message) in own_messages:
        getattr(definition, own_messages[type(message)]).MergeFrom(message)
    elif isinstance(message, LayerParameter):
        definition.MergeFrom(message)
    else:
        hint = f"; {_as_text(kind, param)}" if isinstance(param, Mapping) else ""
        raise LayerError(f"the settings of a layer of type '{kind.name}' cannot be {describe_type(param)}{hint}")
    if definition.type not in ("", kind.name, *kind.signature.aliases):
        raise LayerError(
            f"param has the type '{definition.type}', but the layer has the type '{kind.name}'; omit the type in param"
        )
    definition.type = definition.type or name  # which may be an alias with a rule of its own, as UnPooling
    definition.name = definition.name or "layer"
    for rules in ("include", "exclude"):
        definition.ClearField(rules)
    return definition


def _list_settings(kind: LayerType) -> set[str]:
    """Return the names of the fields of the messages of a type and its variants."""
    messages = [getattr(LayerParameter(), field) for field in _list_params(kind)]
    return {name for message in messages for name in message.DESCRIPTOR.fields_by_name}


def _as_text(kind: LayerType, settings: Mapping[Any, Any]) -> str:
    text = " ".join(f"{name}: {value}" for name, value in settings.items())
    return f"settings are text, such as caffejax.layer({kind.name!r}, {text!r})"


def _parse_text(text: str, own_messages: Iterable[type[Message]]) -> Message:
    """Parse fields of a type's own message, or of one of its variants, or of LayerParameter.

    If all have problems, the problems of the message that has the text's outer fields are raised.
    """
    classes: list[Any] = [*(own_messages if text else ()), LayerParameter]
    results = [(c.DESCRIPTOR.name, *parse_valid_fields(text, c, file="<param>")) for c in classes]

    def count_unknown(result: tuple[Any, ...]) -> tuple[int, bool]:
        name, _, problems = result
        return sum(p.message.startswith(f"{name} has no field") for p in problems), bool(problems)

    _, message, problems = min(results, key=count_unknown)
    if problems:
        raise SchemaError(problems)
    return cast(Message, message)


def name_blobs(definition: LayerParameter, num_bottoms: int) -> LayerParameter:
    """Return a copy with the bottoms bottom0, bottom1, ... and tops top0, top1, ...

    The number of tops is the definition's or, if it names none, the smallest that the type has.
    """
    tops = find_type(definition.type).signature.tops
    minimum = num_bottoms if isinstance(tops, str) else tops if isinstance(tops, int) else max(tops[0], 1)
    named = LayerParameter()
    named.CopyFrom(definition)
    named.bottom[:] = [f"bottom{i}" for i in range(num_bottoms)]
    named.top[:] = [f"top{i}" for i in range(len(definition.top) or minimum)]
    return named


def make_layer_net(
    definition: LayerParameter,
    shapes: tuple[Shape, ...],
    phase: Phase,
    config: NetConfig = NetConfig(),
) -> Net:
    """Return a net of a layer, and of Input layers with these shapes, which are its bottoms.

    Raises:
        CaffejaxError: if the layer does not accept bottoms of these shapes, or settings are invalid.
    """
    message = NetParameter()
    for name, shape in zip(definition.bottom, shapes, strict=True):
        source = message.layer.add(name=f"{name}_input", type="Input", top=[name])
        source.input_param.shape.add(dim=shape)
    message.layer.append(definition)
    return Net(message, phase, config=config)


def _list_params(kind: LayerType) -> list[str]:
    types = kind.implementation.types.values() if isinstance(kind.implementation, Variants) else (kind,)
    return [t.signature.param for t in types if t.signature.param]


def _check_computes(kind: LayerType) -> None:
    if kind.is_input:
        raise LayerError(
            f"a layer of type '{kind.name}' computes nothing: its tops are read from a source or passed by the caller. "
            "Pass its tops to the layers that read them, or use caffejax.Net and caffejax.Loader"
        )


def _get_shape(value: Any) -> Shape:
    shape = getattr(value, "shape", value)
    if not isinstance(shape, tuple | list) or not all(map(is_integer, shape)):
        raise LayerError(f"the shape of a bottom must be a tuple of integers, or an array, not {describe_type(value)}")
    return tuple(shape)
