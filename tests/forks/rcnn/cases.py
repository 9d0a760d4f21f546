"""What several files of tests share: settings, and functions that draw bottoms."""

import functools
from typing import Any

import jax
import numpy as np

from caffejax import Net
from layer_suite import BATCH, Shape, layer_case

MAPS: Shape = (2, 3, 6, 7)
ROIS: Shape = (BATCH, 5)
POOL = "pooled_h: 3 pooled_w: 2 spatial_scale: 0.5"


def draw_rois(random: np.random.Generator, shape: tuple[int, ...], num_images: int = 2) -> np.ndarray:
    """Draw rows [image, x1, y1, x2, y2] within maps of half the size; scaled corners are not near halves."""
    corner = random.integers(0, 5, (shape[0], 2)) * 2.0
    end_corner = corner + random.integers(1, 3, (shape[0], 2)) * 2.0
    return np.concatenate([random.integers(0, num_images, (shape[0], 1)), corner + 0.1, end_corner + 0.2], axis=1)


def draw_rois_of_one_image(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return draw_rois(random, shape, num_images=1)


def draw_image_info(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray([[64, 64, 1, 1][: shape[1]]])


def draw_truth(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw boxes [x1, y1, x2, y2, class] in an image of 64 x 64."""
    corner = random.uniform(0, 30, (shape[0], 2))
    end_corner = corner + random.uniform(15, 30, (shape[0], 2))
    return np.concatenate([corner, end_corner, random.integers(1, 3, (shape[0], 1))], axis=1)


def python_case(module: str, cls: str, text: str, *bottoms: Shape, **options: Any) -> Any:
    param = f"python_param {{ module: '{module}' layer: '{cls}' param_str: \"{text}\" }}"
    return layer_case("Python", param, *bottoms, name=cls, **options)


SCORES: Shape = (1, 18, 4, 4)


def make_net(layer_type: str, text: str, shapes: list[tuple[int, ...]], tops: int = 1, phase: Any = "TEST") -> Net:
    inputs = [
        f'layer {{ name: "b{i}" type: "Input" top: "b{i}" input_param {{ shape {{ '
        f"{' '.join(f'dim: {n}' for n in shape)} }} }} }}"
        for i, shape in enumerate(shapes)
    ]
    blob_names = [f'bottom: "b{i}"' for i in range(len(shapes))] + [f'top: "t{i}"' for i in range(tops)]
    return Net(
        "\n".join([*inputs, f'layer {{ name: "layer" type: "{layer_type}" {" ".join(blob_names)} {text} }}']), phase
    )


@functools.lru_cache(maxsize=1)
def compile_net(net: Net) -> Any:
    return net.jit(net.apply)


def run_net(net: Net, *bottoms: Any, key: int = 0) -> list[np.ndarray]:
    inputs = {f"b{i}": np.asarray(b, np.float32) for i, b in enumerate(bottoms)}
    tops, _ = compile_net(net)({}, {}, inputs, key=jax.random.key(key))
    return [np.asarray(tops[name]) for name in sorted(tops)]


def draw_overhanging_rois(random: np.random.Generator, n: int, num_images: int, size: float) -> np.ndarray:
    a, b = random.uniform(-0.2 * size, 1.2 * size, (2, n, 2))
    return np.concatenate([random.integers(0, num_images, (n, 1)), np.minimum(a, b), np.maximum(a, b)], 1)


MAP_SHAPE, ROI_SHAPE = (2, 18, 6, 7), (4, 5)
