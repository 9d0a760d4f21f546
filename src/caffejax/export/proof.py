"""Proof of an export: the written file runs in an engine, and its outputs are compared with the net's."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..base.errors import CaffejaxError, DataError, GraphError, Problem, raise_if_any
from ..core.data.synthetic_inputs import complete_inputs
from ..core.program.schedule import find_padded_blobs
from ..tools.debugging.dumps import dump
from ..tools.prediction.preprocessing import read_npy
from . import engine_runner
from .inference_model import InferenceModel
from .uint8_input import Uint8Preprocessing

Arrays = Mapping[str, np.ndarray]
TOLERANCE = 1e-3  # of the largest number of an output
_DISTRIBUTIONS = {
    "cv2": ("opencv-python-headless", "opencv-python", "opencv-contrib-python-headless", "opencv-contrib-python")
}
_PIXEL_MEAN = 128.0  # of images whose mean is unknown


@dataclass(frozen=True)
class Difference:
    """The difference between an output of an exported file and the net's.

    Attributes:
        output: the name of the output.
        shape: its shape in the net.
        largest: the largest number of the net's output.
        relative: the largest difference, divided by `largest`; infinite if shapes or NaNs differ.
        note: what the comparison had to allow for, or why it failed.
    """

    output: str
    shape: tuple[int, ...]
    largest: float
    relative: float
    note: str = ""

    @property
    def is_small(self) -> bool:
        """True if the difference is within the tolerance."""
        return self.relative <= TOLERANCE

    def __str__(self) -> str:
        shape, note = "x".join(map(str, self.shape)) or "one number", f" ({self.note})" if self.note else ""
        return f"{self.output} {shape}: {self.relative:.1e} of {self.largest:.4g}{note}"


def find_package_problem(package: str) -> str | None:
    """Return why an engine's package cannot run an exported model here, or None if it can."""
    if find_spec(package) is None:
        name = _DISTRIBUTIONS.get(package, (package,))[0]
        return f"the package {package} is not installed: pip install {name}"
    if package == "cv2" and int((found := get_version(package)).split(".")[0]) < 5:
        return f"OpenCV {found} is installed, not OpenCV 5: pip install 'opencv-python-headless>=5'"
    return None


def get_version(package: str) -> str:
    """Return the version of an installed package."""
    for name in _DISTRIBUTIONS.get(package, (package,)):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "of unknown version"


def draw_inputs(
    model: InferenceModel,
    normalizations: Mapping[str, tuple[np.ndarray, float]],
    preprocessing: Uint8Preprocessing | None = None,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Return random inputs in the range of the net's data.

    Args:
        model: the net, in the shapes of the inputs.
        normalizations: the mean (C, 1, 1) or (C, h, w), and the factor applied after its subtraction, of each input of
            images. Pixels are integers from 0 to 255. Without an entry, 128 is subtracted from images.
        preprocessing: the preprocessing in the exported file. Its input then is uint8 images (N, H, W, C).
        seed: the seed of the numbers.
    """
    rng = np.random.default_rng(seed)
    arrays = complete_inputs(model.net.graph, {}, rng)
    inputs = {name: np.asarray(arrays[name], blob.dtype) for name, blob in model.inputs.items()}
    images = [name for name, blob in model.inputs.items() if blob.ndim == 4 and min(blob.shape[2:]) > 1]
    for name in images:
        shape, dtype = model.inputs[name].shape, model.inputs[name].dtype
        mean, scale = normalizations.get(name, (np.float32(_PIXEL_MEAN), 1.0))
        inputs[name] = ((rng.integers(0, 256, shape) - mean) * scale).astype(dtype)
        if preprocessing is not None and preprocessing.input_name == name:
            inputs[name] = rng.integers(0, 256, (shape[0], *preprocessing.image_shape)).astype(np.uint8)
    height, width = model.inputs[images[0]].shape[2:] if images else (1, 1)
    for name, blob in model.inputs.items():
        if name == "im_info":
            inputs[name] = np.resize(np.array([height, width, 1], np.float32), blob.shape)
        elif blob.ndim >= 2 and blob.shape[1] == 5 and blob.size == 5 * blob.shape[0] and _pools_regions(model, name):
            corners = np.sort(rng.uniform(size=(blob.shape[0], 2, 2)), axis=1) * [width - 1, height - 1]
            boxes = np.concatenate([np.zeros((len(corners), 1)), corners.reshape(-1, 4)], axis=1)
            inputs[name] = boxes.reshape(blob.shape).astype(blob.dtype)
    return inputs


def _pools_regions(model: InferenceModel, name: str) -> bool:
    return any(name in layer.bottoms[1:] and "roi" in layer.type.name.lower() for layer in model.layers)


def read_inputs(path: str, expected: Arrays) -> dict[str, np.ndarray]:
    """Read inputs from a file: an .npz with an array for each input, or an .npy for a net with one input.

    Args:
        path: the file.
        expected: arrays with the shapes and dtypes that the exported file takes, by the name of the input.

    Raises:
        DataError: if the file cannot be read, or arrays are missing or have other shapes.
    """
    if path.endswith(".npz"):
        arrays = dump.read_inputs(path, expected)
    else:
        arrays = dict.fromkeys(list(expected)[:1], read_npy(path))
    problems = [
        f"has no array '{name}', an input of shape {array.shape}"
        if name not in arrays
        else f"'{name}' has shape {arrays[name].shape}, but the input has {array.shape}"
        for name, array in expected.items()
        if name not in arrays or arrays[name].shape != array.shape
    ]
    raise_if_any(DataError, problems, path)
    with np.errstate(over="ignore", invalid="ignore"):
        return {name: arrays[name].astype(array.dtype) for name, array in expected.items()}


def compute_expected(
    model: InferenceModel, inputs: Arrays, preprocessing: Uint8Preprocessing | None = None, *, pad_rows: bool
) -> dict[str, np.ndarray]:
    """Return the net's outputs for inputs of the exported file.

    Args:
        model: the net.
        inputs: the inputs, as `draw_inputs` returns them.
        preprocessing: the preprocessing in the exported file.
        pad_rows: whether outputs keep rows of padding.
    """
    sources = find_padded_blobs(model.layers)
    names = dict.fromkeys([*model.outputs, *(sources[name] for name in model.outputs if name in sources)])

    def run(arrays: dict[str, jax.Array]) -> dict[str, jax.Array]:
        if preprocessing is not None:
            arrays = arrays | {preprocessing.input_name: preprocessing(arrays[preprocessing.input_name])}
        return dict(model.net.apply(*model.variables, arrays, blobs=list(names))[0])

    blobs = jax.jit(run)(dict(inputs))
    if not pad_rows:
        blobs = dict(model.net.strip_padding(blobs))
    return {name: np.asarray(blobs[name]) for name in model.outputs}


def run_in_engine(package: str, path: str, inputs: Arrays) -> dict[str, np.ndarray]:
    """Run an exported file in a separate process; return its outputs by name.

    Args:
        package: the engine's package, a key of `engine_runner.RUNNERS`.
        path: the file, or for flax the folder.
        inputs: the inputs.

    Raises:
        GraphError: if the engine refuses the file or ends the process. The message has the engine's last lines.
    """
    with tempfile.TemporaryDirectory() as folder:
        inputs_file, outputs_file = (os.path.join(folder, f"{name}.npz") for name in ("inputs", "outputs"))
        stored_inputs: dict[str, Any] = {f"_{name}": array for name, array in inputs.items()}  # no names of arguments
        np.savez(inputs_file, **stored_inputs)
        command = [sys.executable, str(engine_runner.__file__), package, path, inputs_file, outputs_file]
        process = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if process.returncode:
            lines = [line.strip() for line in process.stderr.splitlines() if line.strip()]
            hint = ", perhaps because memory ran out" if process.returncode == -9 else ""  # SIGKILL
            reason = " ".join(lines[-3:])[-500:] or f"its process ended with {process.returncode}{hint}"
            raise GraphError(Problem(f"{package} {get_version(package)} does not run it: {reason}", path))
        with np.load(outputs_file) as stored:
            return {name[1:]: stored[name] for name in stored.files}


def run_stablehlo(path: str, inputs: Arrays) -> dict[str, np.ndarray]:
    """Run a file of `write_stablehlo` on the default device; return its outputs by name."""
    exported = jax.export.deserialize(bytearray(Path(path).read_bytes()))
    return {name: np.asarray(array) for name, array in exported.call(dict(inputs)).items()}


def run_flax(folder: str, inputs: Arrays, outputs: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Run the source that `write_flax` wrote; return its outputs by name, with channels first."""
    arrays = {name: np.moveaxis(x, 1, -1) if x.ndim > 2 else x for name, x in inputs.items()}
    results = run_in_engine("flax", folder, arrays).values()
    return {n: np.moveaxis(x, -1, 1) if x.ndim > 2 else x for n, x in zip(outputs, results, strict=True)}


def compare_outputs(actual: Arrays, expected: Arrays, detections: frozenset[str] = frozenset()) -> list[Difference]:
    """Compare the outputs of an exported file with the net's.

    Args:
        actual: the file's outputs.
        expected: the net's outputs.
        detections: the outputs whose rows are detections. They are compared as sets, because engines may exchange two
            boxes with nearly equal scores.
    """
    return [_compare(name, actual.get(name), array, name in detections) for name, array in expected.items()]


def _compare(name: str, actual: np.ndarray | None, expected: np.ndarray, is_set: bool) -> Difference:
    is_finite = np.isfinite(expected)
    largest = float(np.abs(expected[is_finite]).max(initial=0))
    if actual is None or (actual.shape != expected.shape and not is_set):
        note = "it is missing" if actual is None else f"its shape is {actual.shape}"
        return Difference(name, expected.shape, largest, np.inf, note)
    scale = largest or 1.0
    if actual.shape == expected.shape:
        if not np.array_equal(is_finite, np.isfinite(actual)):
            return Difference(name, expected.shape, largest, np.inf, "NaN or infinity in other places")
        error = np.abs(actual[is_finite].astype(np.float64) - expected[is_finite]).max(initial=0) / scale
        if error <= TOLERANCE or not is_set:
            return Difference(name, expected.shape, largest, float(error))
    rows, expected_rows = (a.reshape(-1, expected.shape[-1]).astype(np.float64) for a in (actual, expected))
    if not (len(rows) and len(expected_rows)):
        return Difference(name, expected.shape, largest, np.inf, f"its shape is {actual.shape}")
    distances = max(_find_farthest(rows, expected_rows), _find_farthest(expected_rows, rows)) / scale
    return Difference(name, expected.shape, largest, float(distances), "compared as a set of rows")


def _find_farthest(rows: np.ndarray, others: np.ndarray) -> float:
    """Return the largest distance of a row to its nearest row among `others`."""
    return max(float(np.abs(others - row).max(axis=1).min()) for row in rows)


def find_detections(model: InferenceModel) -> frozenset[str]:
    """Return the outputs whose rows are detections."""
    return frozenset(find_padded_blobs(model.layers)).intersection(model.outputs)


def require_small_differences(differences: list[Difference], path: str) -> None:
    """Raise `CaffejaxError` if a difference is beyond the tolerance; the message names each such output."""
    if large := [item for item in differences if not item.is_small]:
        message = f"the file is kept, but it computes other numbers than the net, beyond {TOLERANCE:g}: "
        raise CaffejaxError(Problem(f"{message}{item}", path) for item in large)
