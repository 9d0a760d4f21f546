"""One competitor of against_engines.py: an engine that reads a net from files, in a separate process.

    python benchmarks/engine_competitor.py ENGINE FOLDER THREADS

`engine_models.write_models` writes FOLDER. The script answers as `competitor_server.serve` does. The interpreter of a
peer needs only NumPy and the peer.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from competitor_server import Run, serve


def _load_net(folder: Path) -> Any:
    from caffejax.net import Net

    net = Net(folder / "deploy.prototxt")
    return net, net.load(folder / "weights.caffemodel")


def build_frozen(folder: Path, data: np.ndarray, threads: int, precision: str = "float32") -> Run:
    import jax

    net, variables = _load_net(folder)
    calibration = [{"data": data}] if precision == "int8" else None
    call, x = net.freeze(variables, precision=precision, calibration=calibration), jax.numpy.asarray(data)
    return lambda: jax.block_until_ready(call({"data": x}))[net.outputs[0]]


def build_unfrozen(folder: Path, data: np.ndarray, threads: int) -> Run:
    import jax

    net, (params, state) = _load_net(folder)
    x = jax.numpy.asarray(data)
    return lambda: jax.block_until_ready(net.forward(params, state, {"data": x})[0])[net.outputs[0]]


def build_onnx_runtime(folder: Path, data: np.ndarray, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    (input_info,) = session.get_inputs()
    return lambda: session.run(None, {input_info.name: data})[0]


def build_onnx_runtime_int8(folder: Path, data: np.ndarray, threads: int) -> Run:
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
    batches = Batches([{session.get_inputs()[0].name: data}])
    types = {"activation_type": quantization.QuantType.QUInt8, "weight_type": quantization.QuantType.QInt8}
    quantization.quantize_static(preprocessed_path, str(int8_path), batches, per_channel=True, **types)
    return build_onnx_runtime(int8_path.parent, data, threads)


def build_openvino(folder: Path, data: np.ndarray, threads: int) -> Run:
    from openvino import Core

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = Core().compile_model(folder / "model.onnx", "CPU", settings).create_infer_request()
    return lambda: request.infer({0: data}, share_inputs=True, share_outputs=True)[0]


def build_ncnn(folder: Path, data: np.ndarray, threads: int) -> Run:
    """Run images one by one, because ncnn has no batches."""
    import ncnn as library

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


def build_opencv(folder: Path, data: np.ndarray, threads: int) -> Run:
    """Read the Caffe model if this version of OpenCV does (up to version 4)."""
    import cv2  # type: ignore[import-not-found]

    cv2.setNumThreads(threads)
    if hasattr(cv2.dnn, "readNetFromCaffe"):
        net = cv2.dnn.readNetFromCaffe(str(folder / "deploy.prototxt"), str(folder / "weights.caffemodel"))
    else:
        net = cv2.dnn.readNetFromONNX(str(folder / "model.onnx"))

    def run() -> Any:
        net.setInput(data)
        return net.forward()

    return run


ENGINES: dict[str, tuple[str, Callable[[Path, np.ndarray, int], Run]]] = {  # the module, and what makes a run
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
    data = np.load(folder / "data.npy")
    serve(lambda: make(folder, data, threads))


if __name__ == "__main__":
    main()
