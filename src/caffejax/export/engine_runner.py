"""Runs an exported file in an engine: `python engine_runner.py ENGINE FILE INPUTS.npz OUTPUTS.npz`.

The engine runs in a separate process, because a fault of the engine may end the process. Nothing here imports caffejax.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


def run_onnxruntime(file: str, inputs: Arrays) -> Arrays:
    """Run an ONNX model in ONNX Runtime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    arrays = session.run(names, {item.name: inputs[item.name] for item in session.get_inputs()})
    return dict(zip(names, arrays, strict=True))


def run_openvino(file: str, inputs: Arrays) -> Arrays:
    """Run an ONNX model in OpenVINO on the CPU, in float32."""
    import openvino

    core = openvino.Core()
    model = core.compile_model(core.read_model(file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    names = {port.get_any_name(): port for port in model.inputs}
    results = model({port: inputs[name] for name, port in names.items()})
    return {port.get_any_name(): np.array(results[port]) for port in model.outputs}


def run_opencv(file: str, inputs: Arrays) -> Arrays:
    """Run an ONNX model in OpenCV's dnn module, in the engine that it chooses."""
    import cv2

    net = cv2.dnn.readNetFromONNX(file)
    for name, array in inputs.items():
        net.setInput(array, name)
    names = list(net.getUnconnectedOutLayersNames())
    return dict(zip(names, map(np.asarray, net.forward(names)), strict=True))


def run_flax(folder: str, inputs: Arrays) -> Arrays:
    """Run the source that `write_flax` wrote. Inputs and outputs have channels last."""
    sys.path.insert(0, folder)
    import model  # type: ignore[import-not-found]

    result: Any = model.load()(*inputs.values())
    parts = result if isinstance(result, dict) else {"": result}
    return {name: np.asarray(array) for name, array in parts.items()}


RUNNERS = {"onnxruntime": run_onnxruntime, "openvino": run_openvino, "cv2": run_opencv, "flax": run_flax}

if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).parent))  # the folder has a module `flax`
    engine, path, inputs_file, outputs_file = sys.argv[1:]
    with np.load(inputs_file) as stored:
        outputs = RUNNERS[engine](path, {name[1:]: stored[name] for name in stored.files})
    stored_outputs: dict[str, Any] = {f"_{name}": array for name, array in outputs.items()}  # no names of arguments
    np.savez(outputs_file, **stored_outputs)
