"""One competitor of against_engines.py: an engine that reads a net from files, in a separate process.

    python benchmarks/engine_competitor.py ENGINE FOLDER THREADS

`engine_models` writes FOLDER: the models, and the inputs by name in inputs.npz. The script answers as
`competitor_server.serve` does. The interpreter of a peer needs only NumPy and the peer.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from competitor_server import Run, serve

Inputs = Mapping[str, np.ndarray]


def _load_net(folder: Path) -> Any:
    from caffejax import Net

    net = Net(folder / "deploy.prototxt")
    return net, net.load(folder / "weights.caffemodel")


def build_frozen(folder: Path, inputs: Inputs, threads: int, precision: str = "float32") -> Run:
    import jax

    net, variables = _load_net(folder)
    calibration = [inputs] if precision == "int8" else None
    call, arrays = net.freeze(variables, precision=precision, calibration=calibration), jax.device_put(dict(inputs))
    return lambda: jax.block_until_ready(call(arrays))[net.outputs[0]]


def build_unfrozen(folder: Path, inputs: Inputs, threads: int) -> Run:
    import jax

    net, (params, state) = _load_net(folder)
    arrays = jax.device_put(dict(inputs))
    return lambda: jax.block_until_ready(net.forward(params, state, arrays)[0])[net.outputs[0]]


def build_onnx_runtime(folder: Path, inputs: Inputs, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    names, output = [info.name for info in session.get_inputs()], session.get_outputs()[0].name
    arrays = dict(zip(names, inputs.values(), strict=True)) if len(names) == 1 else dict(inputs)
    return lambda: session.run([output], arrays)[0]


def build_onnx_runtime_int8(folder: Path, inputs: Inputs, threads: int) -> Run:
    """Quantize weights by channel and blobs to uint8, calibrated on the same batch."""
    import onnxruntime
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Batches(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self, batches: list[dict[str, np.ndarray]]) -> None:
            self._batches = iter(batches)

        def get_next(self) -> Any:
            return next(self._batches, None)

    preprocessed_path, int8_path = str(folder / "simple.onnx"), folder / "int8" / "model.onnx"
    int8_path.parent.mkdir()
    quant_pre_process(str(folder / "model.onnx"), preprocessed_path, skip_symbolic_shape=True)
    session = onnxruntime.InferenceSession(preprocessed_path, providers=["CPUExecutionProvider"])
    (data,) = inputs.values()
    batches = Batches([{session.get_inputs()[0].name: data}])
    types = {"activation_type": quantization.QuantType.QUInt8, "weight_type": quantization.QuantType.QInt8}
    quantization.quantize_static(preprocessed_path, str(int8_path), batches, per_channel=True, **types)
    return build_onnx_runtime(int8_path.parent, inputs, threads)


def build_openvino(folder: Path, inputs: Inputs, threads: int) -> Run:
    from openvino import Core

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = Core().compile_model(folder / "model.onnx", "CPU", settings).create_infer_request()
    arrays: Any = {0: next(iter(inputs.values()))} if len(inputs) == 1 else dict(inputs)
    return lambda: request.infer(arrays, share_inputs=True, share_outputs=True)[0]


def build_ncnn(folder: Path, inputs: Inputs, threads: int) -> Run:
    """Run images one by one, because ncnn has no batches."""
    import ncnn as library

    (data,) = inputs.values()
    net = library.Net()
    net.opt.num_threads = threads
    for name in dir(net.opt):
        if "fp16" in name or "bf16" in name:
            setattr(net.opt, name, False)
    if net.load_param(str(folder / "model.ncnn.param")) or net.load_model(str(folder / "model.ncnn.bin")):
        raise SystemExit("ncnn does not read what pnnx wrote")
    (input_name,), (output_name,) = net.input_names(), net.output_names()

    def run_image(x: np.ndarray) -> np.ndarray:
        extractor = net.create_extractor()
        extractor.input(input_name, library.Mat(x))
        return np.array(extractor.extract(output_name)[1])

    return lambda: np.stack([run_image(x) for x in data])


def build_opencv(folder: Path, inputs: Inputs, threads: int) -> Run:
    """Read the Caffe model if this version of OpenCV does (up to version 4)."""
    import cv2  # type: ignore[import-not-found]

    cv2.setNumThreads(threads)
    if hasattr(cv2.dnn, "readNetFromCaffe"):
        net = cv2.dnn.readNetFromCaffe(str(folder / "deploy.prototxt"), str(folder / "weights.caffemodel"))
    else:
        net = cv2.dnn.readNetFromONNX(str(folder / "model.onnx"))

    outputs = folder / "about.json"
    layers = list(json.loads(outputs.read_text())["outputs"].values())[:1] if outputs.exists() else []

    def run() -> Any:
        if len(inputs) == 1:
            net.setInput(*inputs.values())
        else:
            for name, value in inputs.items():
                net.setInput(value, name)
        return net.forward(*layers)

    return run


def select_comparable(result: np.ndarray) -> np.ndarray:
    """Return the best scores of detections, as the order of rows may differ; of other outputs all values."""
    if result.ndim != 4 or result.shape[-1] != 7:
        return result.ravel()
    rows = result.reshape(-1, 7)
    return -np.sort(-rows[rows[:, 0] >= 0, 2])[:100]


ENGINES: dict[str, tuple[str, Callable[[Path, Inputs, int], Run]]] = {  # the module, and what makes a run
    "frozen": ("caffejax", build_frozen),
    "frozen_bfloat16": ("caffejax", partial(build_frozen, precision="bfloat16")),
    "frozen_int8": ("caffejax", partial(build_frozen, precision="int8")),
    "unfrozen": ("caffejax", build_unfrozen),
    "openvino": ("openvino", build_openvino),
    "onnxruntime": ("onnxruntime", build_onnx_runtime),
    "onnxruntime_int8": ("onnxruntime", build_onnx_runtime_int8),
    "ncnn": ("ncnn", build_ncnn),
    "opencv": ("cv2", build_opencv),
}


def main() -> None:
    name, folder, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    module, make = ENGINES[name]
    library = importlib.import_module(module)
    if module == "caffejax":
        importlib.import_module("caffejax.export")  # the rest of it, and JAX: like the others' libraries not counted
        library.tune_process()
    with np.load(folder / "inputs.npz") as file:
        inputs = dict(file)
    serve(lambda: make(folder, inputs, threads), select_output=select_comparable)


if __name__ == "__main__":
    main()
