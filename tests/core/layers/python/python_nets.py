"""Nets that use the Python layers of user_layers.py."""

from typing import Any

import numpy as np

LOSS_LAYER = """layer { name: "loss" type: "Reduction" bottom: "y" top: "loss" loss_weight: 1
  reduction_param { operation: SUMSQ } }"""


def python_layer(
    name: str, layer: str, bottoms: str = "", tops: str = "", fields: str = "", param_str: str = ""
) -> str:
    """Return a Python layer of user_layers; names of bottoms and tops are separated by spaces."""
    blobs = "".join(f' bottom: "{b}"' for b in bottoms.split()) + "".join(f' top: "{t}"' for t in tops.split())
    text = f'param_str: "{param_str}"' if param_str else ""
    param = f'python_param {{ module: "user_layers" layer: "{layer}" {text} }}'
    return f'layer {{ name: "{name}" type: "Python"{blobs} {param} {fields} }}\n'


def input_layer(*shapes: tuple[int, ...]) -> str:
    """Return an Input layer with tops x0, x1, ..."""
    tops = " ".join(f'top: "x{i}"' for i in range(len(shapes)))
    dims = " ".join("shape { " + " ".join(f"dim: {n}" for n in shape) + " }" for shape in shapes)
    return f'layer {{ name: "in" type: "Input" {tops} input_param {{ {dims} }} }}\n'


def draw_inputs(*shapes: tuple[int, ...], seed: int = 0) -> dict[str, Any]:
    """Draw arrays for `data`."""
    rng = np.random.default_rng(seed)
    return {f"x{i}": rng.normal(size=shape).astype(np.float32) for i, shape in enumerate(shapes)}
