"""A net exported in each form, run where it was exported to, and held against the net itself."""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from caffejax import CaffejaxError, Net
from caffejax.data.complete_inputs import complete_inputs
from caffejax.export import Subject, subject_of
from caffejax.export.flax import write_flax
from export import flax_worker
from export.filled import filled
from export.onnx.onnx_oracle import compiled, exported, run

Arrays = Mapping[str, np.ndarray]
FORMS = ("onnx", "flax")
NUDGE = 1e-6  # what inputs are moved by, to see how far the net itself moves


def assess(path: str, phase: str = "TEST", forms: tuple[str, ...] = FORMS) -> dict[str, Any]:
    """What became of a net: its outputs, and for each form the largest errors or why it is refused.

    `moves` is how far the outputs move where all inputs are others, `sways` where they are nudged. Errors and movements
    are shares of an output's largest number.
    """
    began = time.monotonic()
    try:
        subject = _subject(Net(path, phase))
    except CaffejaxError as error:
        return {"refused": str(error)}
    compute = compiled(subject, subject.inputs)
    first, second = _inputs(subject, 1), _inputs(subject, 2)
    wanted = compute(first)
    nudged = {name: (x * (1 + NUDGE)).astype(x.dtype) for name, x in first.items()}
    found: dict[str, Any] = {
        "outputs": {name: [list(a.shape), _largest(a)] for name, a in wanted.items()},
        "moves": errors(compute(second), wanted),
        "sways": errors(compute(nudged), wanted),
    }
    for form in forms:
        try:
            found[form] = errors(_FORMS[form](subject, first), wanted)
        except CaffejaxError as error:
            found[form] = {"refused": str(error)}
    return found | {"seconds": round(time.monotonic() - began, 1)}


def errors(found: Arrays, wanted: Arrays) -> dict[str, float]:
    """By output, the largest error as a share of the largest number; no number where shapes or NaNs differ."""
    return {name: _error(found[name], array) for name, array in wanted.items()}


def _error(found: np.ndarray, wanted: np.ndarray) -> float:
    if found.shape != wanted.shape or not np.array_equal(np.isfinite(found), np.isfinite(wanted)):
        return float("nan")
    kept = np.isfinite(wanted)
    apart = np.abs(found[kept].astype(np.float64) - wanted[kept]).max(initial=0)
    return float(apart / max(_largest(wanted), 1e-3))


def _largest(array: np.ndarray) -> float:
    return float(np.abs(array[np.isfinite(array)]).max(initial=0))


def _subject(net: Net) -> Subject:
    """The net up to layers that run on the host, and the scores before a last Softmax, which may hide them."""
    variables = filled(net)
    subject = subject_of(net, variables)
    wanted, beyond = list(subject.outputs), set[str]()
    for layer in subject.layers:
        if layer.type.on_host or beyond.intersection(layer.bottoms):
            beyond.update(layer.tops)
            wanted += layer.bottoms
        elif layer.type.name == "Softmax" and layer.tops[0] in subject.outputs:
            wanted += layer.bottoms
    return subject_of(net, variables, [name for name in dict.fromkeys(wanted) if name not in beyond])


def _inputs(subject: Subject, seed: int) -> dict[str, np.ndarray]:
    """Random inputs; boxes and sizes of images are those of the images."""
    random = np.random.default_rng(seed)
    drawn = complete_inputs(subject.net.graph, {}, random)
    inputs = {name: drawn[name].astype(blob.dtype) for name, blob in subject.inputs.items()}
    height, width = next((x.shape[2:] for x in inputs.values() if x.ndim == 4), (1, 1))
    for name, x in inputs.items():
        if name == "im_info":
            inputs[name] = np.resize(np.float32([height, width, 1]), x.shape)
        elif name == "rois":
            corners = np.sort(random.uniform(size=(len(x), 2, 2)), axis=1) * [width - 1, height - 1]
            inputs[name] = np.concatenate([np.zeros((len(x), 1)), corners.reshape(-1, 4)], 1).astype(np.float32)
    return inputs


def _in_onnx(subject: Subject, inputs: Arrays) -> Arrays:
    return run(exported(subject), inputs)


def _in_flax(subject: Subject, inputs: Arrays) -> Arrays:
    with tempfile.TemporaryDirectory() as folder:
        write_flax(subject, Path(folder) / "net")
        given = [np.moveaxis(x, 1, -1) if x.ndim > 2 else x for x in inputs.values()]
        (found,) = flax_worker.run_source(str(Path(folder) / "net"), [given])
    return {n: np.moveaxis(x, -1, 1) if x.ndim > 2 else x for n, x in zip(subject.outputs, found, strict=True)}


_FORMS = {"onnx": _in_onnx, "flax": _in_flax}
