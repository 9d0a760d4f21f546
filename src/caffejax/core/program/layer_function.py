"""Layers as functions of arrays, without a prototxt around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack, cast

import jax
import numpy as np
from google.protobuf.message import Message

from ...base.config import ComputeConfig, DataConfig, Options, resolve_options
from ...base.errors import LayerError, SchemaError, describe_type, is_integer, require
from ...base.variables import Variables
from ..graph import Layer
from ..layers import HostFunction, LayerType, Variants
from ..layers import layer_type as find_type
from ..layers.context import Phase, Shape
from ..layers.python import name_python_layer
from ..schema.caffe_pb2 import LayerParameter, NetParameter
from ..schema.text import parse_valid_fields
from .net import Net
from .net_arguments import check_selection, is_numeric

_MAX_NETS = 64  # of one layer, for different shapes


def layer(
    layer_type: LayerType | str | Callable[..., Any],
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
        layer_type: the name of a registered type, the type, or a Python layer: a class or function at the top level of
            a module.
        param: the fields of the type's own message, such as "local_size: 5", or those of LayerParameter, such as
            'lrn_param { local_size: 5 }', as text or as a message. Names of bottoms do not matter, and names of tops
            only by their number, which is by default the smallest that the type has.
        phase: "TRAIN" or "TEST".
        options: fields of `ComputeConfig` and `DataConfig`, such as `precision` and `kernels`.

    Raises:
        CaffejaxError: if the phase or options are invalid.
        GraphError: if the type is unknown.
        LayerError: if the type computes nothing, as data layers and Input, or `param` is of another type.
        SchemaError: if the text has problems. The message has every problem.
    """
    definition = parse_layer(layer_type, param)
    _check_computes(find_type(definition.type))
    check_selection(phase=phase, level=0, stages=())
    return LayerFunction(definition, phase, *resolve_options(ComputeConfig(), DataConfig(), options))


@dataclass(frozen=True, eq=False)
class LayerFunction:
    """A layer as a pure function; see `layer`.

    Attributes:
        definition: the layer's LayerParameter.
        phase: "TRAIN" or "TEST".
        compute_config, data_config: the options.
    """

    definition: LayerParameter
    phase: Phase
    compute_config: ComputeConfig
    data_config: DataConfig
    _nets: dict[tuple[Shape, ...], Net] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        return f"layer {self.definition.type} in phase {self.phase}"

    def init(self, key: jax.Array, *shapes: Any) -> Variables:
        """Create the layer's initial params and state, `{name: array}` each, with its fillers.

        Args:
            key: a random key.
            shapes: the shape of each bottom, or an array of this shape.

        Returns:
            `Variables(params, state)`, float32. Each is empty if the layer has none.

        Raises:
            CaffejaxError: if the layer does not accept bottoms of these shapes, or settings are invalid.
        """
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
            The top, or a tuple of the tops if they are not exactly one. If `state` is passed, that and the new state.

        Raises:
            CaffejaxError: if arguments are missing, unknown, or of a wrong shape or type, or settings are invalid. The
                message names them.
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
        new_state: Mapping[str, Any] = {layer.key: state}
        tops: tuple[Any, ...] = ()
        if layer.tops or not layer.type.on_host:
            inputs = dict(zip(layer.bottoms, bottoms, strict=True))
            blobs, new_state = net.apply({layer.key: params}, {layer.key: state or {}}, inputs, key, blobs=layer.tops)
            tops = tuple(blobs[name] for name in layer.tops)
        result = tops[0] if len(tops) == 1 else tops
        return result if state is None else (result, new_state.get(layer.key, {}))

    def _connect(self, shapes: tuple[Shape, ...]) -> tuple[Net, Layer]:
        """Return a net of Input layers with these shapes and the layer, and the layer."""
        if shapes not in self._nets:
            if len(self._nets) == _MAX_NETS:
                self._nets.clear()
            connected = name_blobs(self.definition, len(shapes))
            net = make_layer_net(connected, shapes, self.phase, self.compute_config, self.data_config)
            kind = net.graph.layers[-1].type
            _check_computes(kind)
            output = kind.implementation.output if isinstance(kind.implementation, HostFunction) else None
            if output is not None and connected.top:
                raise LayerError(f"{kind.name} writes '{output.pattern}', which a function does not: unset its output")
            self._nets[shapes] = net
        net = self._nets[shapes]
        return net, net.graph.layers[-1]


def parse_layer(layer_type: LayerType | str | Callable[..., Any], param: str | Message) -> LayerParameter:
    """Return the definition of a layer, with its type and a name.

    Args:
        layer_type, param: see `layer`.

    Raises:
        GraphError, LayerError, SchemaError: see `layer`.
    """
    settings = LayerParameter()
    if not isinstance(layer_type, LayerType | str):
        require(callable(layer_type), f"a layer's type must be a name, a LayerType or a class, not {layer_type!r}")
        layer_type = name_python_layer(settings, layer_type)
    kind = layer_type if isinstance(layer_type, LayerType) else find_type(layer_type)
    own_messages = {
        type(getattr(settings, t.signature.param)): t.signature.param
        for t in _list_variants(find_type(kind.name, with_variants=True))
        if t.signature.param
    }
    definition = _parse_text(param, own_messages) if isinstance(param, str) else param
    if type(definition) in own_messages:
        getattr(settings, own_messages[type(definition)]).MergeFrom(definition)
    elif isinstance(definition, LayerParameter):
        settings.MergeFrom(definition)
    else:
        raise LayerError(f"the settings of a layer of type '{kind.name}' cannot be {describe_type(param)}")
    if settings.type not in ("", kind.name, *kind.signature.aliases):
        raise LayerError(
            f"param has the type '{settings.type}', but the layer has the type '{kind.name}'; omit the type in param"
        )
    settings.type = kind.name
    settings.name = settings.name or "layer"
    for rules in ("include", "exclude"):
        settings.ClearField(rules)
    return settings


def _parse_text(text: str, own_messages: Iterable[type[Message]]) -> Message:
    """Parse the fields of a type's own message, or of one of its variants, or those of LayerParameter.

    If all have problems, those of the message that has the text's outer fields are raised.
    """
    classes = [*(own_messages if text else ()), LayerParameter]
    results = [(c, *parse_valid_fields(text, c, file="<param>")) for c in classes]

    def count_unknown(result: tuple[Any, ...]) -> tuple[int, bool]:
        message_class, _, problems = result
        unknown = f"{message_class.DESCRIPTOR.name} has no field"
        return sum(p.message.startswith(unknown) for p in problems), bool(problems)

    _, message, problems = min(results, key=count_unknown)
    if problems:
        raise SchemaError(problems)
    return message


def name_blobs(definition: LayerParameter, num_bottoms: int) -> LayerParameter:
    """Return a copy with the bottoms bottom0, bottom1, ... and tops top0, top1, ...

    There are as many tops as in the definition, or if it names none as few as the type has.
    """
    named = LayerParameter()
    named.CopyFrom(definition)
    named.bottom[:] = [f"bottom{i}" for i in range(num_bottoms)]
    tops = find_type(definition.type).signature.tops
    if isinstance(tops, tuple):
        tops = max(tops[0], 1)
    num_tops = len(definition.top) or (num_bottoms if isinstance(tops, str) else tops)
    named.top[:] = [f"top{i}" for i in range(num_tops)]
    return named


def make_layer_net(
    definition: LayerParameter,
    shapes: tuple[Shape, ...],
    phase: Phase,
    compute_config: ComputeConfig = ComputeConfig(),
    data_config: DataConfig = DataConfig(),
) -> Net:
    """Return a net of Input layers with these shapes, the layer's bottoms, and the layer.

    Raises:
        CaffejaxError: if the layer does not accept bottoms of these shapes, or settings are invalid.
    """
    message = NetParameter()
    for name, shape in zip(definition.bottom, shapes, strict=True):
        source = message.layer.add(name=f"{name}_input", type="Input", top=[name])
        source.input_param.shape.add(dim=shape)
    message.layer.append(definition)
    return Net(message, phase, compute_config=compute_config, data_config=data_config)


def _list_variants(kind: LayerType) -> Iterable[LayerType]:
    return kind.implementation.types.values() if isinstance(kind.implementation, Variants) else (kind,)


def _check_computes(kind: LayerType) -> None:
    if all(variant.is_input for variant in _list_variants(kind)):
        raise LayerError(
            f"a layer of type '{kind.name}' computes nothing: its tops are read from a source or passed by the caller. "
            "Pass its tops to the layers that read them, or use caffejax.Net and caffejax.Loader"
        )


def _get_shape(value: Any) -> Shape:
    shape = getattr(value, "shape", value)
    if not isinstance(shape, tuple | list) or not all(map(is_integer, shape)):
        raise LayerError(f"the shape of a bottom must be a tuple of integers, or an array, not {describe_type(value)}")
    return tuple(shape)
