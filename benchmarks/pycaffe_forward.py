"""Measure the overhead of a pycaffe net over the compiled function: SqueezeNet 1.1, batch 1, a new image each time.

python benchmarks/pycaffe_forward.py
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

import caffejax
import caffejax.pycaffe as caffe

# squeeze and expand channels of each fire module; pooling before the first, third and fifth
FIRES = [(16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)]


def make_convolution(name: str, bottom: str, channels: int, **settings: int) -> Iterator[str]:
    settings_text = " ".join(f"{k}: {v}" for k, v in {"num_output": channels, **settings}.items())
    filler = 'weight_filler { type: "msra" }'
    yield f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}"'
    yield f"  convolution_param {{ {settings_text} {filler} }} }}"
    yield f'layer {{ name: "relu_{name}" type: "ReLU" bottom: "{name}" top: "{name}" }}'


def make_pooling(name: str, bottom: str, settings: str) -> str:
    return f'layer {{ name: "{name}" type: "Pooling" bottom: "{bottom}" top: "{name}" pooling_param {{ {settings} }} }}'


def make_squeezenet() -> Iterator[str]:
    yield 'layer { name: "data" type: "Input" top: "data"'
    yield "  input_param { shape { dim: 1 dim: 3 dim: 227 dim: 227 } } }"
    yield from make_convolution("conv1", "data", 64, kernel_size=3, stride=2)
    last_top = "conv1"
    for i, (squeeze, expand) in enumerate(FIRES, 2):
        if i in (2, 4, 6):
            yield make_pooling(f"pool{i}", last_top, "pool: MAX kernel_size: 3 stride: 2")
            last_top = f"pool{i}"
        fire = f"fire{i}"
        yield from make_convolution(f"{fire}/squeeze", last_top, squeeze, kernel_size=1)
        yield from make_convolution(f"{fire}/expand1x1", f"{fire}/squeeze", expand, kernel_size=1)
        yield from make_convolution(f"{fire}/expand3x3", f"{fire}/squeeze", expand, kernel_size=3, pad=1)
        last_top = f"{fire}/concat"
        bottoms = f'bottom: "{fire}/expand1x1" bottom: "{fire}/expand3x3"'
        yield f'layer {{ name: "{last_top}" type: "Concat" {bottoms} top: "{last_top}" }}'
    yield f'layer {{ name: "drop9" type: "Dropout" bottom: "{last_top}" top: "{last_top}" }}'
    yield from make_convolution("conv10", last_top, 1000, kernel_size=1)
    yield make_pooling("pool10", "conv10", "pool: AVE global_pooling: true")
    yield 'layer { name: "prob" type: "Softmax" bottom: "pool10" top: "prob" }'


def time_run(run: Callable[[Any], object], image: np.ndarray) -> float:
    start = time.perf_counter()
    run(image)
    return (time.perf_counter() - start) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    options = parser.parse_args()
    caffejax.tune_process()
    prototxt = "\n".join(make_squeezenet())
    net = caffe.Net(prototxt, caffe.TEST)
    jax_net = caffejax.Net(prototxt, "TEST")
    params = {name: tuple(jax.device_put(b.data.copy()) for b in blobs) for name, blobs in net.params.items()}
    forward = jax.jit(lambda params, data: jax_net.apply(params, {}, {"data": data})[0]["prob"])
    device = jax.devices()[0]

    def run_jax(image: np.ndarray) -> np.ndarray:
        return np.asarray(forward(params, jax.device_put(image, device)))

    def run_pycaffe(image: np.ndarray) -> np.ndarray:
        net.blobs["data"].data[...] = image
        return net.forward()["prob"]

    def run_pycaffe_and_read_blob(image: np.ndarray) -> np.ndarray:
        net.blobs["data"].data[...] = image
        net.forward()
        return net.blobs["fire9/concat"].data

    rng = np.random.default_rng(0)
    images = [rng.normal(size=(1, 3, 227, 227)).astype(np.float32) for _ in range(4)]
    np.testing.assert_allclose(run_pycaffe(images[0]), run_jax(images[0]), rtol=1e-5)
    times: dict[str, list[float]] = {"bare": [], "pycaffe": [], "pycaffe, and a look at fire9/concat": []}
    for i in range(options.runs + 10):
        for name, run in (("bare", run_jax), ("pycaffe", run_pycaffe)):
            times[name].append(time_run(run, images[i % 4]))
    for i in range(options.runs + 10):
        times["pycaffe, and a look at fire9/concat"].append(time_run(run_pycaffe_and_read_blob, images[i % 4]))
    bare_median = statistics.median(times["bare"][10:])
    print(f"{device.device_kind}, {options.runs} runs each, medians; the first two alternate")
    for name, values in times.items():
        median = statistics.median(values[10:])
        print(f"  {name:40s} {median:8.3f} ms  {100 * (median / bare_median - 1):+.1f} %")


if __name__ == "__main__":
    main()
