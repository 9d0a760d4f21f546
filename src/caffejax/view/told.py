"""What is seen of a net, as the values that the page's scripts read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import Problem
from ..schema import format_text
from ..schema.caffe_pb2 import LayerParameter
from ..sizes import counted
from ..summary import LayerSummary
from .blocks import Block
from .boxes import Box
from .seen import SeenNet, SeenPhase, all_problems
from .wiring import WiredLayer

_LONGEST_TEXT = 20_000  # characters of a layer's prototxt


def told(seen: SeenNet) -> dict[str, Any]:
    """Return a net as values that JSON has.

    Problems have the name of the layer that they are of, and the phases that have them, which is none for those of the
    text. Layers refer to each other, and to their prototxt, by number.
    """
    known = [numbers for part in seen.phases.values() for numbers in part.numbers if numbers]
    families = {numbers.type: numbers.family for numbers in known}  # for layers of phases that cannot be built
    problems = [{**_problem(p), "phases": phases} for p, phases in all_problems(seen)]
    return {
        "name": seen.net.name,
        "file": str(seen.file),
        "problems": problems,
        "notes": seen.notes,
        "texts": [text_of(layer) for layer in seen.net.layer],
        "phases": {phase: _phase(part, families) for phase, part in seen.phases.items()},
    }


def text_of(layer: LayerParameter) -> str:
    """Return a layer's prototxt, as long as can be read, without weights."""
    shown = LayerParameter()
    shown.CopyFrom(layer)
    shown.ClearField("blobs")
    text = "".join(f"  {line}\n" for line in format_text(shown).splitlines())
    cut = f"{text[:_LONGEST_TEXT]}\n  # and {counted(len(text) - _LONGEST_TEXT, 'character')} more\n"
    weights = f"  # blobs: {counted(len(layer.blobs), 'array')} of weights\n" if layer.blobs else ""
    return f"layer {{\n{text if len(text) <= _LONGEST_TEXT else cut}{weights}}}"


def _problem(problem: Problem) -> dict[str, Any]:
    place = {"file": problem.file, "line": problem.line, "layer": problem.layer, "type": problem.layer_type}
    return {"message": problem.message, **{key: value for key, value in place.items() if value is not None}}


def _phase(part: SeenPhase, families: Mapping[str, str]) -> dict[str, Any]:
    layers = [
        {
            "name": layer.layer.name,
            "type": layer.layer.type,
            "family": numbers.family if numbers else families.get(layer.layer.type, "unbuilt"),
            "detail": _detail(layer),
            "text": definition,
            "bottoms": list(layer.layer.bottom),
            "tops": list(layer.layer.top),
            "sources": layer.sources,
            **(_numbers(numbers) if numbers else {}),
        }
        for layer, definition, numbers in zip(part.layers, part.definitions, part.numbers, strict=True)
    ]
    return {
        "layers": layers,
        "boxes": [_box(box) for box in part.boxes],
        "blocks": [_block(block) for block in part.blocks],
        "builds": not part.problems,
        "notes": part.notes,
    }


def _detail(layer: WiredLayer) -> str:
    """Return kernel and stride as a drawing says them: "7x7 /2"."""
    if layer.style.window is None:
        return ""
    kernel, stride = (line.rpartition(": ")[2] for line in layer.style.window(layer.layer)[:2])
    kernel = f"{kernel}x{kernel}" if kernel.isdecimal() else kernel
    kind = f"{layer.style.kind(layer.layer)} " if layer.style.kind else ""
    return f"{kind}{kernel}{'' if stride == '1' else f' /{stride}'}"


def _numbers(of: LayerSummary) -> dict[str, Any]:
    return {
        "shapes": of.top_shapes,
        "paramShapes": of.param_shapes,
        "parameters": of.parameters,
        "multiplyAdds": of.multiply_adds,
        "activationBytes": of.activation_bytes,
        "receptiveField": of.receptive_field,
        "stride": of.stride,
    }


def _box(box: Box) -> dict[str, Any]:
    return {"layers": [layer.number for layer in box.layers], "sources": box.sources}


def _block(block: Block) -> dict[str, Any]:
    return {
        "start": block.start,
        "stop": block.stop,
        "label": block.label,
        "parts": [_block(part) for part in block.parts],
    }
