"""From a subject to the steps of its source, each layer by the emitter of its type."""

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
    """Return a subject's steps.

    Raises:
        CaffejaxError: naming every layer that cannot be written, each with the reason.
    """
    builder, found, problems, refused = Builder(subject), dict[str, Value](), list[Problem](), set[str]()
    for name, like in subject.inputs.items():
        found[name] = builder.value(name, tuple(like.shape), channels_last(len(like.shape)))
    inputs = tuple(value.number for value in found.values())
    for layer in subject.layers:
        bottoms = tuple(found[bottom] for bottom in layer.bottoms)
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
        found |= dict(zip(layer.tops, tops, strict=True))
    if problems:
        if before := _before(subject, refused):
            message = f"this much can be written: --outputs={','.join(before)}"
            problems.append(Problem(message, subject.net.graph.file))
        raise CaffejaxError(problems)
    outputs = tuple(_last(builder, subject, found[name]).number for name in subject.outputs)
    steps = _needed(_batch_norms_scaled(builder.steps, outputs), outputs)
    helpers = _helpers(steps, builder.helpers)
    title = subject.net.graph.name
    return Program(steps, tuple(builder.values), inputs, outputs, title, subject.outputs, helpers=helpers)


def _before(subject: Subject, refused: set[str]) -> list[str]:
    """Return what can be written before the layers that cannot: the last blobs that these, or what follows, read."""
    lost, read = set[str](), dict[str, None]()
    makers = {top: layer for layer in subject.layers for top in layer.tops}
    for layer in subject.layers:
        if layer.key in refused or lost.intersection(layer.bottoms):
            lost.update(layer.tops)
            read |= dict.fromkeys(name for name in layer.bottoms if name in makers and name not in lost)
    named = {name for name in read if not name.endswith(f"/{makers[name].key}")}  # else another layer writes over it
    behind = set[str]()  # what others are made of
    for layer in reversed(subject.layers):
        if behind.intersection(layer.tops) or named.intersection(layer.tops):
            behind.update(layer.bottoms)
    return [name for name in read if name in named - behind]


def _tops(emission: Emission) -> tuple[Value, ...]:
    made = emitter_of(emission.layer)(emission)
    return (made,) if isinstance(made, Value) else tuple(made)


def _last(builder: Builder, subject: Subject, value: Value) -> Value:
    """Return an output with its channels last."""
    layer: Layer = subject.net.graph.layers[-1]
    return Emission(builder, layer, (value,)).last(value)


def _batch_norms_scaled(steps: list[Step], outputs: tuple[int, ...]) -> list[Step]:
    """Give each BatchNorm the scale and the bias of a Scale right behind it, which nobody else sees it without."""
    readers: dict[int, list[Step]] = {}
    uses: dict[int, int] = {}
    for step in steps:
        uses[id(step.part)] = uses.get(id(step.part), 0) + 1
        for number in step.reads:
            readers.setdefault(number, []).append(step)
    found, gone = list[Step](), set[int]()
    for step in steps:
        if id(step) in gone:
            continue
        followers = readers.get(step.writes[0], [])
        if step.part and len(followers) == 1 and step.writes[0] not in outputs:
            (scale,) = followers
            once = uses[id(step.part)] == 1 == uses[id(scale.part)]
            if once and scale.part is not None and (part := _with_scale(step.part, scale.part)) is not None:
                gone.add(id(scale))
                step = replace(step, part=part, writes=scale.writes)
        found.append(step)
    return found


def _with_scale(norm: Part, scale: Part) -> Part | None:
    """Return a BatchNorm with what a Scale has, if they are that."""
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


def _needed(steps: list[Step], outputs: tuple[int, ...]) -> tuple[Step, ...]:
    """Return the steps that lead to the outputs."""
    needed, kept = set(outputs), list[Step]()
    for step in reversed(steps):
        if not needed.isdisjoint(step.writes):
            kept.append(step)
            needed.update(step.reads)
    return tuple(reversed(kept))


def _helpers(steps: tuple[Step, ...], known: set[str]) -> frozenset[str]:
    """Return the helpers that steps still use."""
    makers = {step.part.maker for step in steps if step.part}
    return frozenset(name for name in known if name in makers or any(f"{name}(" in step.text for step in steps))
