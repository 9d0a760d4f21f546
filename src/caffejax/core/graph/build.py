"""Construction of a graph: select layers, insert splits, connect blobs, infer shapes, and mark layers for backward."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from ...base.config import NetConfig
from ...base.errors import CaffejaxError, GraphError, LayerError, Problem, SchemaError, locate_errors
from ...base.host_memory import find_memory_problem
from ...base.human_readable import format_count
from ..layers import (
    CallerInput,
    Context,
    HostFunction,
    LayerDefinition,
    LayerType,
    Phase,
    SourceInput,
    SourceSpec,
    Traced,
    type_of,
)
from ..layers.blob_checks import declared_params, wrap_layer_errors
from ..layers.context import Shape, read_parameters, resolve_type, strip_net_fields
from ..layers.dispatch import forward
from ..layers.fillers import check_filler
from ..schema import caffe_pb2, ignored_settings
from ..schema.caffe_pb2 import LayerParameter, NetParameter, NetState
from .graph import UNNAMED_TOP, DefinedNames, Graph, Layer, Param
from .resolve import (
    find_sources,
    insert_splits,
    is_included,
    layer_problems,
    missing_problems,
    net_problems,
    rename_in_place_reshapes,
    reread_net,
    resolve_variant,
    type_problems,
)
from .shared_params import SharedParams, make_recurrent_state_params

log = logging.getLogger("caffejax")

_KEY = jax.eval_shape(jax.random.key, 0)
_MAX_SIZE = 1 << 60  # the number of elements at which a blob's size may overflow when it is padded or counted in bytes


def build_graph(
    net: NetParameter,
    state: NetState,
    *,
    file: str | None = None,
    config: NetConfig = NetConfig(),
    text_problems: Sequence[Problem] = (),
) -> Graph:
    """Build the graph of an upgraded net in a state (see `make_net_state`).

    Args:
        net: an upgraded net, from `schema.read_net`.
        state: phase, level and stages.
        file: path of the net, for messages and for paths relative to it; None for a net without a file.
        config: how the net computes and reads its data.
        text_problems: problems of the net's text. The layers that they name are not checked further.

    Raises:
        GraphError: if the net has problems. The error contains all problems, and each problem names its layer.
        SchemaError: if `text_problems` is not empty. The error contains these, followed by the problems of the net.
    """
    if text_problems and (net.layers or net.input):
        raise SchemaError(text_problems)  # the net was not upgraded, so its layers cannot be checked
    wiring, problems = _connect_layers(net, state, file, config, text_problems)
    warnings: list[str] = []
    if problems and not text_problems and (second_reading := reread_net(net)) is not None:
        reread, sentences = second_reading
        reread_wiring, problems_of_rereading = _connect_layers(reread, state, file, config, text_problems)
        if not problems_of_rereading:
            net, wiring, problems, warnings = reread, reread_wiring, [], sentences
    if text_problems or problems:
        with locate_errors(file=file):
            raise (SchemaError if text_problems else GraphError)([*text_problems, *problems])
    layers = [(layer.definition.layer, layer.type.signature.param) for layer in wiring.layers]
    for sentence in (*warnings, *ignored_settings(net, layers), *_describe_equal_names(wiring.layers)):
        log.warning("%s%s", f"{file}: " if file else "", sentence)
    return Graph(
        name=net.name,
        phase=wiring.phase,
        layers=mark_backward(list(wiring.shared_params.resolve_multipliers(wiring.layers)), net.force_backward),
        blobs=wiring.blobs,
        input_layer_tops=tuple(wiring.input_layer_tops),
        outputs=tuple(sorted(wiring.unread_blobs, key=str.encode)),  # by bytes, as in Caffe's std::set
        force_backward=net.force_backward,
        file=file,
        defined=_find_defined_names(net, state),
    )


def _find_defined_names(net: NetParameter, state: NetState) -> DefinedNames:
    other_phase: Phase = "TEST" if state.phase == caffe_pb2.TRAIN else "TRAIN"
    other_state = NetState(phase=other_phase, level=state.level, stage=state.stage)
    counts = Counter(layer.name for layer in net.layer)
    return DefinedNames(
        layers=frozenset(counts),
        repeated_layers=frozenset(name for name, count in counts.items() if count > 1),
        inputs=frozenset(top for layer in net.layer if not layer.bottom for top in layer.top),
        other_phase=other_phase,
        other_tops=frozenset(top for layer in net.layer if is_included(layer, other_state) for top in layer.top),
    )


def _describe_equal_names(layers: Sequence[Layer]) -> Iterator[str]:
    layers_by_name: dict[str, list[Layer]] = {}
    for layer in layers:
        layers_by_name.setdefault(layer.name, []).append(layer)
    for name, equal_layers in layers_by_name.items():
        if len(equal_layers) > 1 and any(layer.params for layer in equal_layers):
            tops = (", ".join(map(repr, layer.tops)) or "no top" for layer in equal_layers)
            types = [f"{layer.type.name} -> {names}" for layer, names in zip(equal_layers, tops, strict=True)]
            yield (
                f"{len(equal_layers)} layers are named '{name}' ({'; '.join(types)}): weights are saved and loaded by "
                "name, so the layers would get each other's; give each layer its own name"
            )


def _connect_layers(
    net: NetParameter,
    state: NetState,
    file: str | None,
    config: NetConfig,
    text_problems: Sequence[Problem],
) -> tuple[_Wiring, list[Problem]]:
    layers = rename_in_place_reshapes([layer for layer in net.layer if is_included(layer, state)])
    unreadable_layers = {problem.layer or "" for problem in text_problems}
    problems = [*net_problems(net, unreadable_layers)]
    problems_by_layer = [
        list(type_problems(layer) if layer.name in unreadable_layers else layer_problems(layer)) for layer in layers
    ]
    problems += [p for problems_of_layer in problems_by_layer for p in problems_of_layer]
    sources, missing_bottoms = find_sources(layers)
    lack_tops = (layer.name in unreadable_layers and not layer.top for layer in layers)
    # a layer whose text is unreadable may produce the missing blobs
    if "" not in unreadable_layers and not any(lack_tops):
        excluded_layers = [layer for layer in net.layer if not is_included(layer, state)]
        problems += missing_problems(layers, excluded_layers, missing_bottoms)
    phase: Any = caffe_pb2.Phase.Name(state.phase)
    wiring = _Wiring(phase, file, config, definitions=layers)
    for layer, i in insert_splits(layers, sources):
        if i is not None and layer.name in unreadable_layers:
            wiring.uncertain_tops.update(layer.top)
            wiring.failed_tops.update(layer.top)
        elif i is not None and (problems_by_layer[i] or any((i, j) not in sources for j in range(len(layer.bottom)))):
            wiring.failed_tops.update(layer.top)
        else:
            wiring.add(layer, i)
    return wiring, [*problems, *wiring.problems]


@dataclass
class _Wiring:
    """Builder of a graph, to which layers are added in order. It collects blobs, shared params and problems."""

    phase: Any
    file: str | None
    config: NetConfig
    shared_params: SharedParams = field(default_factory=SharedParams)
    layers: list[Layer] = field(default_factory=list)
    blobs: dict[str, jax.ShapeDtypeStruct] = field(default_factory=dict)
    input_layer_tops: list[str] = field(default_factory=list)
    unread_blobs: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    failed_tops: set[str] = field(default_factory=set)  # tops of layers with errors; their readers are not checked
    uncertain_tops: set[str] = field(default_factory=set)  # tops of layers with errors in their text or rules
    used_keys: set[str] = field(default_factory=set)
    definitions: Sequence[LayerParameter] = ()  # the layers of the text, without splits

    def add(self, layer: LayerParameter, index: int | None) -> None:
        """Add a layer. `index` is its index in the text, or None for an inserted split."""
        try:
            with locate_errors(file=self.file, layer=layer.name, layer_type=layer.type):
                if index is not None:
                    layer = resolve_variant(layer, index, self.definitions, self.blobs)
                kind = type_of(layer)
                self._connect(layer, kind)
                context, definition = self._make_context(layer, kind)
                if self.failed_tops.isdisjoint(layer.bottom):
                    self._append_layer(context, definition, inserted=index is None)
                    return
        except CaffejaxError as error:
            self.problems += error.problems
        self.failed_tops.update(layer.top)

    def _connect(self, layer: LayerParameter, kind: LayerType) -> None:
        self.unread_blobs.difference_update(layer.bottom)
        for i, top in enumerate(layer.top):
            in_place = i < len(layer.bottom) and top == layer.bottom[i]
            if in_place and not kind.signature.in_place:
                raise GraphError(
                    f"does not allow in-place computation (bottom and top '{top}'); give the top a different name"
                )
            if not in_place and (
                top in self.blobs or top in self.failed_tops - self.uncertain_tops or top in layer.top[:i]
            ):
                raise GraphError(f"top blob '{top}' produced by multiple sources; give each top a different name")
        self.unread_blobs.update(layer.top)
        if kind.is_net_input:
            self.input_layer_tops.extend(layer.top)

    def _make_context(self, layer: LayerParameter, kind: LayerType) -> tuple[Context, LayerDefinition]:
        phase: Any = caffe_pb2.Phase.Name(layer.phase) if layer.HasField("phase") else self.phase
        definition = LayerDefinition(layer, phase, self.file, self.config)
        context = Context(strip_net_fields(layer), kind, phase, self.config)
        return resolve_type(context, definition), definition

    def _append_layer(self, context: Context, definition: LayerDefinition, inserted: bool) -> None:
        layer, key = definition.layer, self._make_key(definition.layer.name)
        bottoms = [self.blobs[b] for b in layer.bottom]
        specs = declared_params(context, bottoms)
        for spec in specs:
            check_filler(spec.filler)
        context = context.replace(blob_names=tuple((s.name or str(i), s.learnable) for i, s in enumerate(specs)))
        learned = [repr(s.name or str(i)) for i, s in enumerate(specs) if s.learnable]
        function = getattr(context.type.implementation, "forward", None)
        if learned and not {"params", "blobs"} & {*read_parameters(function)[0]}:
            raise LayerError(f"has {', '.join(learned)} as params, but its function does not take `params`: add it")
        persistent = [s for s in specs if s.persistent]
        params = self.shared_params.add(key, layer, persistent, strict=context.type.docs.origin == "BVLC")
        recurrent_state = make_recurrent_state_params(key, len(params), [s for s in specs if not s.persistent])
        kind = context.type
        source_spec = kind.implementation.probe(definition) if isinstance(kind.implementation, SourceInput) else None
        tops = infer_top_shapes(context, (*params, *recurrent_state), bottoms, source_spec)
        check_countable(tops)
        names = tuple(layer.top) or (UNNAMED_TOP,) * len(tops if context.type.signature.loss else ())
        if len(tops) != len(names):
            raise LayerError(f"computes {format_count(len(tops), 'top')}, but the layer names {len(names)}")
        for bottom, name, bottom_spec, top in zip(layer.bottom, names, bottoms, tops, strict=False):
            if name == bottom and top.shape != bottom_spec.shape:
                raise GraphError(
                    f"top '{name}' of shape {top.shape} cannot replace a bottom of shape {bottom_spec.shape} in place; "
                    "give the top a different name"
                )
        self.blobs.update(zip(names, tops, strict=True))
        self.layers.append(
            Layer(
                key=key,
                context=context,
                definition=definition,
                bottoms=tuple(layer.bottom),
                tops=names,
                loss_weights=_get_loss_weights(context.type, layer, len(names)),
                params=params,
                recurrent_state=recurrent_state,
                is_inserted_split=inserted,
                source_spec=source_spec,
            )
        )

    def _make_key(self, name: str) -> str:
        key, n = name, 1
        while key in self.used_keys:
            n += 1
            key = f"{name}#{n}"
        self.used_keys.add(key)
        return key


def _get_loss_weights(kind: LayerType, layer: LayerParameter, n_tops: int) -> tuple[float, ...]:
    weights = tuple(layer.loss_weight) or ((1.0,) if kind.signature.loss else (0.0,) * n_tops)
    if len(weights) != n_tops:
        raise GraphError(
            "loss_weight must be unspecified or specified once per top, but is specified "
            f"{format_count(len(weights), 'time')} for {format_count(n_tops, 'top')}"
        )
    return weights


def infer_top_shapes(
    context: Context,
    params: Sequence[Param],
    bottoms: Sequence[jax.ShapeDtypeStruct],
    source_spec: SourceSpec | None = None,
) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Return the shapes and dtypes of a layer's tops.

    For data layers they come from `source_spec`. For other layers they come from the type's shape rule or, if it has
    none, from tracing the forward function, which is done once for equal contexts and shapes.

    Args:
        context: the layer's settings and type.
        params: the layer's params.
        bottoms: shapes and dtypes of the bottoms.
        source_spec: for a data layer, the shapes and dtypes that its source has; None for other layers.
    """
    implementation = context.type.implementation
    if source_spec is not None:
        return source_spec.tops
    if isinstance(implementation, CallerInput):
        return tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in context.call(implementation.shapes))
    if isinstance(implementation, HostFunction):
        shapes = context.call(implementation.top_shapes, *bottoms)
        return tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes)
    infer_tops = _infer_tops if is_cacheable(context, bottoms) else _infer_tops.__wrapped__
    blobs = tuple(p.spec.shape for p in params)
    tops: tuple[jax.ShapeDtypeStruct, ...] = infer_tops(context, blobs, tuple(bottoms), jax.enable_x64.value)
    return tops


def is_cacheable(context: Context, bottoms: Sequence[jax.ShapeDtypeStruct]) -> bool:
    """Return whether equal contexts and shapes have equal params and tops, so that these can be cached.

    The result is False for a type that is made for one layer, because it may read files, and for symbolic sizes,
    because sizes of different scopes cannot be compared.
    """
    has_fixed_sizes = all(type(n) is int for b in bottoms for n in b.shape)
    return has_fixed_sizes and not context.has_own_type and isinstance(context.type.implementation, Traced)


@lru_cache(2048)
def _infer_tops(
    context: Context, blobs: tuple[Shape, ...], bottoms: tuple[jax.ShapeDtypeStruct, ...], x64: bool
) -> tuple[jax.ShapeDtypeStruct, ...]:
    kind = context.type  # x64 is here only as a part of the cache's key
    with wrap_layer_errors(kind, bottoms):
        shapes = _shapes_by_rule(context, bottoms)
    if shapes is not None:
        return tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes)
    arrays = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in blobs)

    def run_forward(key: jax.Array, *arguments: Any) -> Any:
        return forward(context.replace(fold_in_args=(key, 0)), *arguments)[0]

    with wrap_layer_errors(kind, bottoms), jax.numpy_rank_promotion("allow"):
        tops: tuple[jax.ShapeDtypeStruct, ...] = jax.eval_shape(run_forward, _KEY, arrays, bottoms)
    return tops


def _shapes_by_rule(context: Context, bottoms: Sequence[jax.ShapeDtypeStruct]) -> Sequence[Shape] | None:
    """Return the shapes of a layer's tops by its type's shape rule, or None if the forward function must be traced."""
    kind = context.type
    if not isinstance(kind.implementation, Traced) or context.config.precision == "bfloat16":
        return None
    if any(b.dtype != jnp.float32 for b in bottoms):
        return None
    rule = kind.implementation.top_shapes
    shapes: Sequence[Shape] | None = context.call(rule, *bottoms) if rule else None
    return shapes


def check_countable(tops: Sequence[jax.ShapeDtypeStruct]) -> None:
    """Check that all tops have fewer than 2**60 elements. Larger sizes overflow when they are counted in bytes.

    Raises:
        LayerError: if a top is too large. The message names its shape.
    """
    for top in tops:
        name, remedy = f"a top of shape {top.shape}", "check the layer's sizes"
        if problem := find_memory_problem(math.prod(top.shape), name, remedy, _MAX_SIZE - 1):
            raise LayerError(problem)


def mark_backward(layers: Sequence[Layer], force_backward: bool) -> tuple[Layer, ...]:
    """Set `need_backward` and `bottom_need_backward` of the layers, and `need_backward` of their params.

    There are three passes, as in Caffe. The first goes forwards: a layer needs a gradient if it, or a layer before it,
    has a param with a learning rate. The second goes backwards, and unmarks layers that do not lead to a loss or whose
    gradient is stopped by `propagate_down: false`. The third marks all layers if `force_backward` is set.
    """
    layers_to_loss = _unmark_without_loss(_mark_from_params(layers))
    return tuple(_force_backward(layer) for layer in layers_to_loss) if force_backward else tuple(layers_to_loss)


def _mark_from_params(layers: Sequence[Layer]) -> list[Layer]:
    need_gradient: dict[str, bool] = {}
    result = []
    for layer in layers:
        propagate = list(layer.definition.layer.propagate_down)
        n = len(layer.bottoms)
        bottoms_need = [need_gradient[b] and layer.type.takes_gradient(i, n) for i, b in enumerate(layer.bottoms)]
        needs_backward = any(bottoms_need) or any(p.need_backward for p in layer.params)
        need_gradient.update(dict.fromkeys(layer.tops, needs_backward))
        bottoms = tuple(propagate or bottoms_need)
        result.append(replace(layer, need_backward=needs_backward, bottom_need_backward=bottoms))
    return result


def _unmark_without_loss(layers: Sequence[Layer]) -> list[Layer]:
    blobs_to_loss: set[str] = set()
    tops_without_loss: set[str] = set()
    result = []
    for layer in reversed(layers):
        leads_to_loss = any(
            weight or top in blobs_to_loss for top, weight in zip(layer.tops, layer.loss_weights, strict=True)
        )
        is_unreachable = all(top in tops_without_loss for top in layer.tops)
        bottoms = layer.bottom_need_backward
        if not leads_to_loss or (layer.need_backward and is_unreachable):
            bottoms = (False,) * len(bottoms)
        needs_backward = layer.need_backward and leads_to_loss and not is_unreachable
        if leads_to_loss:
            blobs_to_loss.update(layer.bottoms)
        tops_without_loss.update(b for b, needed in zip(layer.bottoms, bottoms, strict=True) if not needed)
        result.append(replace(layer, need_backward=needs_backward, bottom_need_backward=bottoms))
    return result[::-1]


def _force_backward(layer: Layer) -> Layer:
    n, gradient = len(layer.bottoms), layer.type.gradient
    exempt_bottoms: Collection[int] | None = gradient.exempt_from_force_backward
    if exempt_bottoms is None:  # in Caffe losses skip their labels, metrics do not
        exempt_bottoms = layer.index_bottoms if gradient.differentiable else ()
    bottoms_need = tuple(
        need or (i not in exempt_bottoms and layer.type.takes_gradient(i, n))
        for i, need in enumerate(layer.bottom_need_backward)
    )
    params = tuple(replace(p, need_backward=True) for p in layer.params)
    return replace(layer, need_backward=True, bottom_need_backward=bottoms_need, params=params)
