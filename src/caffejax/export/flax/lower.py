"""Lowering of a net to a flax program: each layer is emitted, and steps that no output needs are removed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import chain

import numpy as np

from ...base.errors import CaffejaxError, LayerError, Problem
from ...core.graph import Layer
from ...core.program.targets import translate
from ..inference_model import InferenceModel
from . import emit_convolution, emit_dense, emit_elementwise, emit_normalization, emit_pooling, emit_shape_ops  # noqa: F401
from .emit_context import FLAX, FlaxBuilder, channels_last_order
from .ir import ExpressionStep, ModuleSpec, Program, Value
from .runtime_helpers import SCALE


def lower(model: InferenceModel) -> Program:
    """Convert a net to a program: the steps of its forward pass, and its modules.

    Raises:
        CaffejaxError: if layers are not supported. The message names each of them and the reason.
    """
    builder = FlaxBuilder(model)

    def add_blob(blob: str) -> Value:
        shape = tuple(model.net.graph.blobs[blob].shape)
        return builder.add_value(blob, shape, channels_last_order(len(shape)))

    def emit(layer: Layer, bottoms: tuple[Value, ...]) -> dict[str, Value]:
        tops = FLAX.match(builder.make_call(layer, bottoms))
        if tops is None:
            raise LayerError("is not supported in flax source; export outputs that do not depend on it (--outputs)")
        return tops

    values = {name: add_blob(name) for name in model.inputs}
    inputs = tuple(value.number for value in values.values())
    if problems := translate(model.layers, values, emit, add_blob):
        messages = list(chain.from_iterable(problems.values()))
        if names := ",".join(_find_exportable_outputs(model, problems)):
            message = f"outputs that do not depend on these layers can be exported: --outputs={names}"
            messages.append(Problem(message, model.net.graph.file))
        raise CaffejaxError(messages)
    outputs = tuple(_to_channels_last(builder, model, values[name]).number for name in model.outputs)
    steps = _prune_steps(_merge_scales_into_batch_norms(builder.steps, outputs), outputs)
    helpers = _select_helpers(steps, builder.helpers)
    net_name = model.net.graph.name
    return Program(steps, tuple(builder.values), inputs, outputs, net_name, model.outputs, helpers=helpers)


def _find_exportable_outputs(model: InferenceModel, failed_keys: Collection[str]) -> list[str]:
    """Return the names of the outputs that could be exported: the last blobs that depend on no unsupported layer."""
    unavailable_blobs, candidates = set[str](), dict[str, None]()
    producers = {top: layer for layer in model.layers for top in layer.tops}
    for layer in model.layers:
        if layer.key in failed_keys or unavailable_blobs.intersection(layer.bottoms):
            unavailable_blobs.update(layer.tops)
            candidates |= dict.fromkeys(
                name for name in layer.bottoms if name in producers and name not in unavailable_blobs
            )
    # a blob whose name ends with its layer's key is overwritten later, so it cannot be an output
    outputs = {name for name in candidates if not name.endswith(f"/{producers[name].key}")}
    intermediate_blobs = set[str]()  # blobs from which other outputs are computed
    for layer in reversed(model.layers):
        if intermediate_blobs.intersection(layer.tops) or outputs.intersection(layer.tops):
            intermediate_blobs.update(layer.bottoms)
    return [name for name in candidates if name in outputs - intermediate_blobs]


def _to_channels_last(builder: FlaxBuilder, model: InferenceModel, value: Value) -> Value:
    """Return an output of the net with its channels last; add a transposition if needed."""
    return builder.make_call(model.net.graph.layers[-1], (value,)).to_channels_last(value)


def _merge_scales_into_batch_norms(steps: list[ExpressionStep], outputs: tuple[int, ...]) -> list[ExpressionStep]:
    """Return the steps with each Scale merged into the BatchNorm before it, if no other step reads the BatchNorm."""
    readers: dict[int, list[ExpressionStep]] = {}
    use_counts: dict[int, int] = {}
    for step in steps:
        use_counts[id(step.module)] = use_counts.get(id(step.module), 0) + 1
        for number in step.reads:
            readers.setdefault(number, []).append(step)
    merged_steps, absorbed_ids = list[ExpressionStep](), set[int]()
    for step in steps:
        if id(step) in absorbed_ids:
            continue
        result_readers = readers.get(step.writes[0], [])
        if step.module and len(result_readers) == 1 and step.writes[0] not in outputs:
            (scale,) = result_readers
            are_used_once = use_counts[id(step.module)] == 1 == use_counts[id(scale.module)]
            if (
                are_used_once
                and scale.module is not None
                and (module := _merge_scale(step.module, scale.module)) is not None
            ):
                absorbed_ids.add(id(scale))
                step = replace(step, module=module, writes=scale.writes)
        merged_steps.append(step)
    return merged_steps


def _merge_scale(norm: ModuleSpec, scale: ModuleSpec) -> ModuleSpec | None:
    """Return the BatchNorm module `norm` with the factor and bias of `scale`, or None if they cannot be merged."""
    settings = dict(norm.arguments)
    if norm.constructor != "nnx.BatchNorm" or settings.get("use_scale", True) or scale.constructor != SCALE:
        return None
    if dict(scale.arguments)["shape"] != (settings["num_features"],):
        return None
    del settings["use_scale"]
    if "bias" in scale.weights:
        del settings["use_bias"]
    weights: dict[str, np.ndarray] = {**norm.weights, **scale.weights}
    return replace(norm, arguments=tuple(settings.items()), weights=weights)


def _prune_steps(steps: list[ExpressionStep], outputs: tuple[int, ...]) -> tuple[ExpressionStep, ...]:
    needed_values, used_steps = set(outputs), list[ExpressionStep]()
    for step in reversed(steps):
        if not needed_values.isdisjoint(step.writes):
            used_steps.append(step)
            needed_values.update(step.reads)
    return tuple(reversed(used_steps))


def _select_helpers(steps: tuple[ExpressionStep, ...], available_helpers: set[str]) -> frozenset[str]:
    constructors = {step.module.constructor for step in steps if step.module}
    return frozenset(
        name for name in available_helpers if name in constructors or any(f"{name}(" in step.text for step in steps)
    )
