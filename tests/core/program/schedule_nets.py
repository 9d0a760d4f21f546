"""Nets for the tests of schedules."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from caffejax import Net
from caffejax.core.program.schedule import LayerSchedule

CONFIGS = Path(__file__).parents[3] / "configs"
KEY = jax.random.key(0)
INPUT = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 6 dim: 6 } } }'
CONVOLUTION = """layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
    convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }"""


def make_in_place_layer(layer_type: str, settings: str = "", blob: str = "conv") -> str:
    """Return the text of a layer that works in place."""
    return f'layer {{ name: "{layer_type.lower()}" type: "{layer_type}" bottom: "{blob}" top: "{blob}" {settings} }}'


CHAIN = (
    INPUT
    + CONVOLUTION
    + make_in_place_layer("BatchNorm")
    + make_in_place_layer("Scale")
    + make_in_place_layer("ReLU")
    + make_in_place_layer("TanH")
)
FILTERED = (
    INPUT
    + 'layer { name: "wanted" type: "Input" top: "wanted" input_param { shape { dim: 2 } } }'
    + CONVOLUTION
    + 'layer { name: "filter" type: "Filter" bottom: "conv" bottom: "wanted" top: "some" }'
    + make_in_place_layer("ReLU", blob="some")
    + 'layer { name: "ip" type: "InnerProduct" bottom: "some" top: "ip" inner_product_param { num_output: 2 } }'
    + 'layer { name: "sum" type: "Reduction" bottom: "ip" top: "sum" }'
)


def get_step_names(schedule: LayerSchedule) -> list[list[str]]:
    """Return the names of the layers of each step."""
    return [[layer.name for layer in step.layers] for part in schedule.parts for step in part.steps]


def make_inputs(net: Net, batch: int) -> dict[str, jax.Array]:
    """Return random inputs of a net; inputs with one axis are labels of five classes."""
    random = np.random.default_rng(0)
    inputs = {name: random.normal(size=(batch, *net.graph.blobs[name].shape[1:])) for name in net.input_names}
    return {name: jnp.asarray(np.arange(batch) % 5 if x.ndim == 1 else x, jnp.float32) for name, x in inputs.items()}
