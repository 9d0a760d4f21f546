"""Translation of a net to the steps of its flax source. The emitter of each layer's type adds the layer's steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...errors import CaffejaxError, Problem
from ...graph import Layer
from ..inference_model import Subject
from . import emit_convolution, emit_elementwise, emit_normalization, emit_shape_ops  # noqa: F401  they register
from .emit_context import Builder, Emission, channels_last, emitter_of
from .ir import Part, Program, Step, Value


def translate(subject: Subject) -> Program:
    """Return the program of a net: the steps of its forward pass and its modules.

    Raises:
        CaffejaxError: naming every layer that cannot be written, with the reasons.
    """
    builder, values, problems, refused = Builder(subject), dict[str, Value](), list[Problem](), set[str]()
    for name, like in subject.inputs.items():
        values[name] = builder.value(name, tuple(like.shape), channels_last(len(like.shape)))
    inputs = tuple(value.number for value in values.values())
    for layer in subject.layers:
        bottoms = tuple(values[bottom] for bottom in layer.bottoms)
        try:
            with layer.located():
                tops = _tops(Emission(builder, layer, bottoms))
        except CaffejaxError as error:
            problems += error.problems
            refused.add(layer.key)
            shapes = (tuple(subject.net.graph.blobs[top].shape) for top in layer.tops)
            tops = tuple(
                builder.value(top, shape, channels_last(len(shape)))
                for top, shape in zip(layer.tops, shapes, strict=True)
            )
        values |= dict(zip(layer.tops, tops, strict=True))
    if problems:
        if earlier := _outputs_before(subject, refused):
            message = f"the layers before can be written: --outputs={','.join(earlier)}"
            problems.append(Problem(message, subject.net.graph.file))
        raise CaffejaxError(problems)
    outputs = tuple(_last(builder, subject, values[name]).number for name in subject.outputs)
    steps = _used_steps(_merge_scales_into_batch_norms(builder.steps, outputs), outputs)
    helpers = _used_helpers(steps, builder.helpers)
    title = subject.net.graph.name
    return Program(steps, tuple(builder.values), inputs, outputs, title, subject.outputs, helpers=helpers)


def _outputs_before(subject: Subject, refused: set[str]) -> list[str]:
    """Return the names of the last blobs that do not depend on a refused layer; these outputs can be exported."""
    lost, read = set[str](), dict[str, None]()
    makers = {top: layer for layer in subject.layers for top in layer.tops}
    for layer in subject.layers:
        if layer.key in refused or lost.intersection(layer.bottoms):
            lost.update(layer.tops)
            read |= dict.fromkeys(name for name in layer.bottoms if name in makers and name not in lost)
    # a blob whose name ends with its layer's key is overwritten later and cannot be an output
    named = {name for name in read if not name.endswith(f"/{makers[name].key}")}
    inner = set[str]()  # blobs from which named blobs are computed
    for layer in reversed(subject.layers):
        if inner.intersection(layer.tops) or named.intersection(layer.tops):
            inner.update(layer.bottoms)
    return [name for name in read if name in named - inner]


def _tops(emission: Emission) -> tuple[Value, ...]:
    tops = emitter_of(emission.layer)(emission)
    return (tops,) if isinstance(tops, Value) else tuple(tops)


def _last(builder: Builder, subject: Subject, value: Value) -> Value:
    """Return an output of the net with its channels last; a transposition is added if needed."""
    layer: Layer = subject.net.graph.layers[-1]
    return Emission(builder, layer, (value,)).last(value)


def _merge_scales_into_batch_norms(steps: list[Step], outputs: tuple[int, ...]) -> list[Step]:
    """Return the steps with each Scale merged into the BatchNorm before it, if only the Scale reads its value."""
    readers: dict[int, list[Step]] = {}
    uses: dict[int, int] = {}
    for step in steps:
        uses[id(step.part)] = uses.get(id(step.part), 0) + 1
        for number in step.reads:
            readers.setdefault(number, []).append(step)
    merged, absorbed = list[Step](), set[int]()
    for step in steps:
        if id(step) in absorbed:
            continue
        followers = readers.get(step.writes[0], [])
        if step.part and len(followers) == 1 and step.writes[0] not in outputs:
            (scale,) = followers
            once = uses[id(step.part)] == 1 == uses[id(scale.part)]
            if once and scale.part is not None and (part := _with_scale(step.part, scale.part)) is not None:
                absorbed.add(id(scale))
                step = replace(step, part=part, writes=scale.writes)
        merged.append(step)
    return merged


def _with_scale(norm: Part, scale: Part) -> Part | None:
    """Return a BatchNorm module with a Scale's parameters; None if the two cannot be merged."""
    settings = dict(norm.arguments)
    if norm.maker != "nnx.BatchNorm" or settings.get("use_scale", True) or scale.maker != "Scale":
        return None
    if dict(scale.arguments)["shape"] != (settings["num_features"],):
        return None
    del settings["use_scale"]
    if "bias" in scale.weights:
        del settings["use_bias"]
    weights: dict[str, np.ndarray] = {**norm.weights, **scale.weights}
    return replace(norm, arguments=tuple(settings.items()), weights=weights)


def _used_steps(steps: list[Step], outputs: tuple[int, ...]) -> tuple[Step, ...]:
    """Return the steps that the outputs depend on."""
    needed, kept = set(outputs), list[Step]()
    for step in reversed(steps):
        if not needed.isdisjoint(step.writes):
            kept.append(step)
            needed.update(step.reads)
    return tuple(reversed(kept))


def _used_helpers(steps: tuple[Step, ...], available: set[str]) -> frozenset[str]:
    """Return the names of the helpers in `available` that the steps use."""
    makers = {step.part.maker for step in steps if step.part}
    return frozenset(name for name in available if name in makers or any(f"{name}(" in step.text for step in steps))
