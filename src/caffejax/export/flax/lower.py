"""Lowering of a net to a flax program: each layer is emitted, and steps that no output needs are removed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...errors import CaffejaxError, Problem
from ...graph import Layer
from ..inference_model import InferenceModel
from . import emit_convolution, emit_dense, emit_elementwise, emit_normalization, emit_pooling, emit_shape_ops  # noqa: F401
from .emit_context import EmitContext, FlaxBuilder, channels_last, get_emitter
from .ir import ExpressionStep, ModuleSpec, Program, Value


def lower(model: InferenceModel) -> Program:
    """Return the program of a net: the steps of its forward pass and its modules.

    Raises:
        CaffejaxError: if layers are not supported. The message names each of them and the reason.
    """
    builder, values, problems, failed = FlaxBuilder(model), dict[str, Value](), list[Problem](), set[str]()
    for name, blob in model.inputs.items():
        values[name] = builder.add_value(name, tuple(blob.shape), channels_last(len(blob.shape)))
    inputs = tuple(value.number for value in values.values())
    for layer in model.layers:
        bottoms = tuple(values[bottom] for bottom in layer.bottoms)
        try:
            with layer.locate_errors():
                tops = _tops(EmitContext(builder, layer, bottoms))
        except CaffejaxError as error:
            problems += error.problems
            failed.add(layer.key)
            shapes = (tuple(model.net.graph.blobs[top].shape) for top in layer.tops)
            tops = tuple(
                builder.add_value(top, shape, channels_last(len(shape)))
                for top, shape in zip(layer.tops, shapes, strict=True)
            )
        values |= dict(zip(layer.tops, tops, strict=True))
    if problems:
        if exportable := _exportable_outputs(model, failed):
            message = f"the layers before it can be exported: --outputs={','.join(exportable)}"
            problems.append(Problem(message, model.net.graph.file))
        raise CaffejaxError(problems)
    outputs = tuple(_to_channels_last(builder, model, values[name]).number for name in model.outputs)
    steps = _used_steps(_merge_scales_into_batch_norms(builder.steps, outputs), outputs)
    helpers = _used_helpers(steps, builder.helpers)
    net_name = model.net.graph.name
    return Program(steps, tuple(builder.values), inputs, outputs, net_name, model.outputs, helpers=helpers)


def _exportable_outputs(model: InferenceModel, failed: set[str]) -> list[str]:
    """Return the names of the outputs that could be exported: the last blobs that depend on no unsupported layer."""
    unavailable, candidates = set[str](), dict[str, None]()
    producers = {top: layer for layer in model.layers for top in layer.tops}
    for layer in model.layers:
        if layer.key in failed or unavailable.intersection(layer.bottoms):
            unavailable.update(layer.tops)
            candidates |= dict.fromkeys(name for name in layer.bottoms if name in producers and name not in unavailable)
    # a blob whose name ends with its layer's key is overwritten later, so it cannot be an output
    outputs = {name for name in candidates if not name.endswith(f"/{producers[name].key}")}
    inner = set[str]()  # blobs from which other outputs are computed
    for layer in reversed(model.layers):
        if inner.intersection(layer.tops) or outputs.intersection(layer.tops):
            inner.update(layer.bottoms)
    return [name for name in candidates if name in outputs - inner]


def _tops(context: EmitContext) -> tuple[Value, ...]:
    tops = get_emitter(context.layer)(context)
    return (tops,) if isinstance(tops, Value) else tuple(tops)


def _to_channels_last(builder: FlaxBuilder, model: InferenceModel, value: Value) -> Value:
    """Return an output of the net with its channels last; add a transposition if needed."""
    layer: Layer = model.net.graph.layers[-1]
    return EmitContext(builder, layer, (value,)).to_channels_last(value)


def _merge_scales_into_batch_norms(steps: list[ExpressionStep], outputs: tuple[int, ...]) -> list[ExpressionStep]:
    """Return the steps with each Scale merged into the BatchNorm before it, if no other step reads the BatchNorm."""
    readers: dict[int, list[ExpressionStep]] = {}
    uses: dict[int, int] = {}
    for step in steps:
        uses[id(step.module)] = uses.get(id(step.module), 0) + 1
        for number in step.reads:
            readers.setdefault(number, []).append(step)
    merged, absorbed = list[ExpressionStep](), set[int]()
    for step in steps:
        if id(step) in absorbed:
            continue
        followers = readers.get(step.writes[0], [])
        if step.module and len(followers) == 1 and step.writes[0] not in outputs:
            (scale,) = followers
            used_once = uses[id(step.module)] == 1 == uses[id(scale.module)]
            if (
                used_once
                and scale.module is not None
                and (module := _merge_scale(step.module, scale.module)) is not None
            ):
                absorbed.add(id(scale))
                step = replace(step, module=module, writes=scale.writes)
        merged.append(step)
    return merged


def _merge_scale(norm: ModuleSpec, scale: ModuleSpec) -> ModuleSpec | None:
    """Return the BatchNorm module `norm` with the factor and bias of `scale`, or None if they cannot be merged."""
    settings = dict(norm.arguments)
    if norm.constructor != "nnx.BatchNorm" or settings.get("use_scale", True) or scale.constructor != "Scale":
        return None
    if dict(scale.arguments)["shape"] != (settings["num_features"],):
        return None
    del settings["use_scale"]
    if "bias" in scale.weights:
        del settings["use_bias"]
    weights: dict[str, np.ndarray] = {**norm.weights, **scale.weights}
    return replace(norm, arguments=tuple(settings.items()), weights=weights)


def _used_steps(steps: list[ExpressionStep], outputs: tuple[int, ...]) -> tuple[ExpressionStep, ...]:
    """Return the steps on which the outputs depend."""
    needed, used_steps = set(outputs), list[ExpressionStep]()
    for step in reversed(steps):
        if not needed.isdisjoint(step.writes):
            used_steps.append(step)
            needed.update(step.reads)
    return tuple(reversed(used_steps))


def _used_helpers(steps: tuple[ExpressionStep, ...], available: set[str]) -> frozenset[str]:
    """Return the names of the helpers in `available` that the steps use."""
    constructors = {step.module.constructor for step in steps if step.module}
    return frozenset(
        name for name in available if name in constructors or any(f"{name}(" in step.text for step in steps)
    )
