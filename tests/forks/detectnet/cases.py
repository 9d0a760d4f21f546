"""What several files of tests share: settings, and functions that draw bottoms."""

import functools
from typing import Any

import jax
import numpy as np

import caffejax

Random, Shape = np.random.Generator, tuple[int, ...]


Arrays = dict[str, np.ndarray]
Shape = tuple[int, ...]
Rows = list[tuple[float, ...]]
HEIGHT, WIDTH, STRIDE = 32, 48, 8
CLASS_MAP = {1: 0, 3: 1}


def format_input_layer(name: str, shape: Shape) -> str:
    dims = " ".join(f"dim: {n}" for n in shape)
    return f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}\n'


def make_net(param: str, *, phase: str = "TEST", size: Shape = (HEIGHT, WIDTH), label: Shape = (1, 1, 8, 16)) -> Any:
    class_fields = " ".join(f"object_class {{ src: {k} dst: {v} }}" for k, v in CLASS_MAP.items())
    return caffejax.Net(
        format_input_layer("x", (1, 3, *size))
        + format_input_layer("l", label)
        + f"""layer {{ name: "t" type: "DetectNetTransformation" bottom: "x" bottom: "l" top: "y" top: "g"
        detectnet_groundtruth_param {{
          {"" if "stride" in param else f"stride: {STRIDE}"}
          image_size_x: {WIDTH} image_size_y: {HEIGHT} {class_fields} {param} }} }}
        """,
        phase=phase,
    )


def make_label_bottom(rows: Rows) -> np.ndarray:
    result = np.zeros((1, 1, 8, 16), np.float32)
    result[0, 0, 0, :2] = len(rows), 16
    for row, (x, y, w, h, label_class) in zip(result[0, 0, 1:], rows, strict=False):
        row[:4], row[5] = (x, y, w, h), label_class
    result[0, 0, len(rows) + 1 :][:, [2, 3, 5]] = 9, 9, 1  # beyond the count
    return result


@functools.cache
def jit_apply(net: Any) -> Any:
    return net.jit(lambda inputs, key: net.apply({}, {}, inputs, key=key)[0])


def run(net: Any, image: np.ndarray, rows: np.ndarray, key: int = 0) -> Arrays:
    tops = jit_apply(net)({"x": image, "l": rows}, jax.random.key(key))
    return {name: np.asarray(top) for name, top in tops.items()}
