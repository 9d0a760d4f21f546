"""Excessive numbers in a prototxt are refused at once, or do not affect the time."""

import tracemalloc
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import GraphError, Net, summarize
from caffejax import pycaffe as caffe
from caffejax.base.errors import CaffejaxError

TILE = """layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 3 dim: 5 dim: 4 } } }
    layer { name: "l" type: "Tile" bottom: "x" top: "y" tile_param { tiles: 2 } }"""


def make_net(layer: str, channels: int = 3, **options: str) -> Net:
    shape = f"shape {{ dim: 1 dim: {channels} dim: 5 dim: 4 }}"
    return Net(
        f"""layer {{ name: "in" type: "Input" top: "x" input_param {{ {shape} }} }}
        layer {{ name: "l" bottom: "x" top: "y" {layer} }}""",
        **options,
    )


@pytest.mark.parametrize(
    "layer",
    [
        'type: "InnerProduct" inner_product_param { num_output: 2000000000 }',
        'type: "Convolution" convolution_param { num_output: 2000000000 kernel_size: 3 }',
        'type: "Deconvolution" convolution_param { num_output: 3 kernel_size: 3 stride: 1000000 }',
        'type: "Tile" tile_param { axis: 1 tiles: 2147483647 }',
        'type: "Embed" embed_param { input_dim: 2000000000 num_output: 2000000000 }',
    ],
)
def test_oversized_data_is_refused_before_allocation(layer: str) -> None:
    with pytest.raises(
        GraphError, match=r"layer 'l' .*needs .* but only .* of memory are available: check the .*sizes"
    ):
        make_net(layer).init(jax.random.key(0))


def test_data_larger_than_memory_is_refused() -> None:
    data = """layer { name: "d" type: "DummyData" top: "x"
        dummy_data_param { shape { dim: 1000000 dim: 1000000 } } }"""
    with pytest.raises(GraphError, match=r"layer 'd' \(DummyData\): needs .* 3.64 TiB of tops .* are available"):
        Net(data).init(jax.random.key(0))


def test_abstract_init_allocates_nothing() -> None:
    """This allows planning of nets that are too large for this machine."""
    result = make_net('type: "InnerProduct" inner_product_param { num_output: 2000000000 }')
    shapes = jax.eval_shape(result.init, jax.random.key(0))
    assert shapes.params["l"]["weight"].shape == (2_000_000_000, 60)


@pytest.mark.parametrize("pool", ["MAX", "AVE"])
def test_pooling_windows_much_larger_than_the_image_are_rejected(pool: str) -> None:
    with pytest.raises(CaffejaxError, match=r"the kernel \(30000, 30000\) is larger than .*the plane \(5, 4\)"):
        make_net(f'type: "Pooling" pooling_param {{ pool: {pool} kernel_size: 30000 pad: 29999 }}')


@pytest.mark.parametrize(
    ("shape", "layer"),
    [
        ((1, 2, 20_000_000, 7), 'type: "Im2col" convolution_param { kernel_size: 3 }'),
        ((1, 2, 20_000_000, 7), 'type: "Pooling" pooling_param { pool: AVE kernel_size: 3 pad: 1 }'),
    ],
)
def test_shapes_of_large_layers_are_inferred_without_arrays(shape: tuple[int, ...], layer: str) -> None:
    dims = " ".join(f"dim: {n}" for n in shape)
    text = f"""layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ {dims} }} }} }}
        layer {{ name: "l" bottom: "x" top: "y" {layer} }}"""
    tracemalloc.start()
    try:
        str(summarize(Net(text, "TEST")))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < max(shape), "something as long as a side"


@pytest.mark.parametrize("kernels", ["fast", "reference"])
@pytest.mark.parametrize("size", [3, 7, 9, 4294967295])
@pytest.mark.parametrize("region", ["ACROSS_CHANNELS", "WITHIN_CHANNEL"])
def test_lrn_windows_beyond_the_edges_are_cheap(region: str, size: int, kernels: str) -> None:
    """LRN treats positions beyond the edges as zeros."""
    lrn = f'type: "LRN" lrn_param {{ local_size: {size} alpha: 2 beta: 0.75 norm_region: {region} }}'
    result = make_net(lrn, kernels=kernels)
    x = np.random.default_rng(0).normal(size=(1, 3, 5, 4)).astype(np.float32)
    y, _ = result.apply(*result.init(jax.random.key(0)), {"x": jnp.asarray(x)})
    half = min(size // 2, 10)
    squares, sums = np.pad(x[0] ** 2, half), np.zeros((3, 5, 4))
    is_across_channels = region == "ACROSS_CHANNELS"
    for c, i, j in np.ndindex(sums.shape):
        window = [slice(n, n + 2 * half + 1) for n in (c, i, j)]
        center = [slice(n + half, n + half + 1) for n in (c, i, j)]
        sums[c, i, j] = squares[(window[0], *center[1:]) if is_across_channels else (center[0], *window[1:])].sum()
    scale = 1 + 2 / (size if is_across_channels else size**2) * sums
    np.testing.assert_allclose(y["y"][0], x[0] * scale**-0.75, rtol=1e-5)


def test_every_entry_point_checks_sizes() -> None:
    small, large = (
        make_net('type: "Tile" tile_param { tiles: 2 }'),
        make_net('type: "Tile" tile_param { tiles: 2147483647 }'),
    )
    variables, inputs = small.init(jax.random.key(0)), {"x": jnp.ones((1, 3, 5, 4))}
    pycaffe_net = caffe.Net(TILE, caffe.TEST)

    def reshape_net() -> None:
        pycaffe_net.blobs["x"].reshape(2**40, 3, 5, 4)
        pycaffe_net.reshape()

    calls: list[Callable[[], object]] = [
        lambda: large.apply(*variables, inputs),
        lambda: large.freeze(variables)(inputs),
        lambda: large.freeze(variables).compile(),
        lambda: small.freeze(variables).with_batch(2**40),
        lambda: caffe.Net(TILE.replace("tiles: 2", "tiles: 2147483647"), caffe.TEST),
        reshape_net,
    ]
    for call in calls:
        with pytest.raises(
            GraphError, match=r"layer '(l|in)' .*needs .* but only .* of memory are available: check the .*sizes"
        ):
            call()
