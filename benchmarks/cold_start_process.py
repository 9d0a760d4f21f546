"""One competitor of cold_start.py: import a library in a fresh process, run a net, and print times and memory.

    python benchmarks/cold_start_process.py NAME FOLDER START JOBS SECONDS THREADS

FOLDER was written by `cold_start_nets`, START is the `time.monotonic()` at which the process was started, and JOBS says
what to measure beside the first result: `size`, `memory`, both, or `first` for nothing more. It prints one line of JSON
and writes the outputs to FOLDER/NAME-first.npz and NAME-second.npz. A peer's interpreter needs only NumPy and the peer.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]
Run = Callable[[Arrays], Arrays]  # inputs by name to outputs by name
Step = Callable[[], float]  # one training step; gives the loss
CALLS = 40


def build_frozen(threads: int) -> Callable[[Path], Run]:
    import jax

    import caffejax

    caffejax.tune_process()
    net_class: Any = caffejax.Net  # imported when it is named

    def build(folder: Path) -> Run:
        net = net_class(folder / "deploy.prototxt", "TEST")
        call = net.freeze(net.load(folder / "weights.caffemodel"))
        return lambda inputs: {name: np.asarray(value) for name, value in jax.block_until_ready(call(inputs)).items()}

    return build


def build_pycaffe(threads: int) -> Callable[[Path], Run]:
    import caffejax
    import caffejax.pycaffe as caffe

    caffejax.tune_process()

    def build(folder: Path) -> Run:
        net = caffe.Net(str(folder / "deploy.prototxt"), str(folder / "weights.caffemodel"), caffe.TEST)

        def run(inputs: Arrays) -> Arrays:
            if any(net.blobs[name].data.shape != value.shape for name, value in inputs.items()):
                for name, value in inputs.items():
                    net.blobs[name].reshape(*value.shape)
                net.reshape()
            for name, value in inputs.items():
                net.blobs[name].data[...] = value
            net.forward()
            return {name: np.array(net.blobs[name].data) for name in net.outputs}

        return run

    return build


def build_opencv(threads: int) -> Callable[[Path], Run]:
    import cv2  # type: ignore[import-not-found]

    cv2.setNumThreads(threads)

    def build(folder: Path) -> Run:
        net = cv2.dnn.readNetFromCaffe(str(folder / "deploy.prototxt"), str(folder / "weights.caffemodel"))
        outputs = json.loads((folder / "about.json").read_text())["outputs"]
        layers = list(outputs.values())

        def run(inputs: Arrays) -> Arrays:
            for name, value in inputs.items():
                net.setInput(value, name)
            return dict(zip(outputs, net.forward(layers), strict=True))

        return run

    return build


def build_onnxruntime(threads: int) -> Callable[[Path], Run]:
    import onnxruntime as library

    options = library.SessionOptions()
    options.intra_op_num_threads = threads

    def build(folder: Path) -> Run:
        session = library.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
        outputs = [output.name for output in session.get_outputs()]
        return lambda inputs: dict(zip(outputs, session.run(None, dict(inputs)), strict=True))

    return build


def build_openvino(threads: int) -> Callable[[Path], Run]:
    from openvino import Core

    core = Core()

    def build(folder: Path) -> Run:
        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        model = core.compile_model(folder / "model.onnx", "CPU", {"INFERENCE_NUM_THREADS": threads} | settings)
        request = model.create_infer_request()

        def run(inputs: Arrays) -> Arrays:
            results = request.infer(dict(inputs))
            return {output.get_any_name(): results[output] for output in model.outputs}

        return run

    return build


def build_solver(threads: int) -> Callable[[Path], Step]:
    import jax

    import caffejax

    caffejax.tune_process()  # as `caffejax train` does
    solver_class: Any = caffejax.Solver  # imported when it is named

    def build(folder: Path) -> Step:
        with np.load(folder / "batch.npz") as file:
            batch = dict(file)  # SSD's labels have another number of rows than its images
        solver = solver_class(folder / "solver.prototxt", data=[batch], weights=[folder / "weights.caffemodel"])

        def step() -> float:
            solver.step(1)
            jax.block_until_ready(solver.train_state)
            return float(solver.smoothed_loss)

        return step

    return build


def build_torch(threads: int) -> Callable[[Path], Step]:
    import torch as library

    library.set_num_threads(threads)

    def build(folder: Path) -> Step:
        saved = library.load(folder / "module.pt", weights_only=False)
        module, scope = saved["module"], {"torch": library, "inf": np.inf, "nan": np.nan, "device": library.device}
        exec(saved["source"], scope)  # the net written out, as a user of PyTorch would
        sgd = library.optim.SGD(module.parameters(), lr=0.001, momentum=0.9, weight_decay=0.0005, fused=True)
        with np.load(folder / "batch.npz") as file:
            data, label = library.from_numpy(file["data"]), library.from_numpy(file["label"]).long()

        def step() -> float:
            sgd.zero_grad()
            loss = scope["forward"](module, data, label)
            loss.backward()
            sgd.step()
            return float(loss.detach())

        return step

    return build


def write_torch(folder: Path) -> None:
    """Write module.pt for `build_torch`: weights, and the net's source. This needs torch and caffejax."""
    import torch as library
    from torch_net import TorchNet, trace_net

    from caffejax import Net

    net = Net(folder / "train.prototxt", "TRAIN")
    traced = trace_net(TorchNet(net.graph, net.load(folder / "weights.caffemodel")))
    module = library.nn.Module()
    for name, child in traced.named_children():
        module.add_module(name, child)
    source = traced.graph.python_code("self").src
    library.save({"module": module.train(), "source": source}, folder / "module.pt")


NETS: dict[str, Callable[[int], Callable[[Path], Run]]] = {
    "frozen": build_frozen,
    "pycaffe": build_pycaffe,
    "opencv": build_opencv,
    "onnxruntime": build_onnxruntime,
    "openvino": build_openvino,
}
TRAINERS: dict[str, Callable[[int], Callable[[Path], Step]]] = {"solver": build_solver, "torch": build_torch}


def measure_net(
    name: str, folder: Path, start_time: float, jobs: list[str], seconds: float, threads: int
) -> dict[str, Any]:
    """Import, build and run a net; return seconds from the start, and the milliseconds of the following calls."""
    build_net = NETS[name](threads)
    import_end = time.monotonic()
    run, first = build_net(folder), _load_arrays(folder / "first.npz")
    outputs = run(first)
    result: dict[str, Any] = {"imports": import_end - start_time, "first": time.monotonic() - start_time}
    np.savez(folder / f"{name}-first.npz", **outputs)  # type: ignore[arg-type]
    if "size" in jobs or "memory" in jobs:
        times = _time_calls(lambda: run(first), seconds)
        result |= {"steady": _steady_time(times), "worst": max(times) / _steady_time(times), "memory": _resident_mib()}
    if "size" in jobs:
        second = _load_arrays(folder / "second.npz")
        start = time.perf_counter()
        outputs = run(second)
        result["resized"] = (time.perf_counter() - start) * 1000
        np.savez(folder / f"{name}-second.npz", **outputs)  # type: ignore[arg-type]
        times = _time_calls(lambda: run(second), seconds)
        result |= {"resized_steady": _steady_time(times), "resized_worst": max(times) / _steady_time(times)}
    return result


def measure_training(name: str, folder: Path, start_time: float, threads: int) -> dict[str, Any]:
    """Import, build a solver and train two steps; return seconds from the start, and the milliseconds of the second."""
    build = TRAINERS[name](threads)
    import_end = time.monotonic()
    step = build(folder)
    loss = step()
    first = time.monotonic()
    step()
    second = (time.monotonic() - first) * 1000
    return {"imports": import_end - start_time, "first": first - start_time, "second": second, "loss": loss}


def _load_arrays(path: Path) -> Arrays:
    with np.load(path) as file:
        return dict(file)


def _time_calls(call: Callable[[], object], seconds: float) -> list[float]:
    """Return the milliseconds of up to 39 calls, of which only the first 4 may begin after `seconds`."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < CALLS - 1 and (len(times) < 4 or time.perf_counter() < end):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1000)
    return times


def _steady_time(times: list[float]) -> float:
    """Return the median of the later half of the times."""
    return float(np.median(times[len(times) // 2 :]))


def _resident_mib() -> float:
    """Return the resident memory of this process in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    if name == "write_torch":
        write_torch(folder)
        return
    start_time, jobs = float(sys.argv[3]), sys.argv[4].split(",")
    seconds, threads = float(sys.argv[5]), int(sys.argv[6])
    if name in TRAINERS:
        result = measure_training(name, folder, start_time, threads)
    else:
        result = measure_net(name, folder, start_time, jobs, seconds, threads)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
