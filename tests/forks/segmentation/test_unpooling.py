"""Tests of Pooling, Unpooling and Upsample."""

from typing import Any

import jax
import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.core.program.net import Net
from layer_nets import draw_normal, first_top, net_text
from layer_suite import BATCH, Shape, fork_properties, layer_case, recorded

MAPS: Shape = (BATCH, 4, 5, 6)


def draw_pooling_indices(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw distinct indices, for each channel, into a top of twice the height and width."""
    *planes, height, width = shape
    permutations = [random.permutation(4 * height * width)[: height * width] for _ in range(int(np.prod(planes)))]
    return np.reshape(permutations, shape).astype(np.float32)


test_recorded = recorded("Pooling", "Unpooling", "Upsample", family="segmentation")
test_properties = fork_properties(
    layer_case(
        "Unpooling",
        "unpooling_param { unpool_h: 10 unpool_w: 12 }",
        MAPS,
        MAPS,
        samplers={"b1": draw_pooling_indices},
    ),
    layer_case(
        "Unpooling", "unpooling_param { kernel_size: 2 stride: 2 unpool_h: 10 unpool_w: 12 }", MAPS, name="no_mask"
    ),
    *(
        layer_case(
            "Unpooling",
            f"unpooling_param {{ unpool: {method} kernel_size: 3 stride: 2 unpool_h: 11 unpool_w: 13 }}",
            MAPS,
            name=method,
        )
        for method in ("AVE", "TILE")
    ),
    layer_case(
        "Upsample", "upsample_param { scale: 2 }", MAPS, MAPS, name="segnet", samplers={"b1": draw_pooling_indices}
    ),
    layer_case("Upsample", "upsample_param { scale: 2 }", MAPS, name="yolo"),
)


IMAGE_SHAPE = (2, 4, 5, 6)

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("window", "size"), [("kernel_size: 2 stride: 2", (11, 13)), ("kernel_size: 4 pad: 1", (6, 7))]
)
def test_default_output_size_of_unpooling(window: str, size: tuple[int, int]) -> None:
    """Each side is the larger of (n - 1) * stride + kernel - 2 * pad and n * stride - pad + 1."""
    assert first_top("UnPooling", f"unpooling_param {{ {window} }}", draw_normal(2, 4, 5, 6)).shape == (2, 4, *size)


@pytest.mark.parametrize("layer_type", ["Upsample", "UnPooling"])
def test_unpooling_puts_maxima_at_their_original_positions(layer_type: str) -> None:
    param = "upsample_param { scale: 2 }" if layer_type == "Upsample" else "unpooling_param { unpool_h: 6 unpool_w: 8 }"
    text = f"""
        layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ dim: 2 dim: 3 dim: 6 dim: 8 }} }} }}
        layer {{ name: "pool" type: "Pooling" bottom: "x" top: "max" top: "mask"
          pooling_param {{ kernel_size: 2 stride: 2 }} }}
        layer {{ name: "up" type: "{layer_type}" bottom: "max" bottom: "mask" top: "up" {param} }}
    """
    x = draw_normal(2, 3, 6, 8)
    up = Net(text).apply({}, {}, {"x": x})[0]["up"]
    assert np.count_nonzero(up) == 2 * 3 * 3 * 4
    np.testing.assert_array_equal(np.where(up != 0, x, 0), up)


def test_upsample_gives_nan_for_indices_outside_of_the_top() -> None:
    mask = np.zeros((1, 2, 2, 2), np.float32)
    mask[0, 1, 0, 0] = 16
    result = first_top("Upsample", "upsample_param { scale: 2 }", np.ones_like(mask), mask)
    assert not np.isnan(result[0, 0]).any()
    assert np.isnan(result[0, 1]).all()


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        ("Upsample", "upsample_param { scale: 1 }", [IMAGE_SHAPE, IMAGE_SHAPE], "scale must be more than 1, not 1"),
        ("Upsample", "upsample_param { scale: 0 }", [IMAGE_SHAPE], "scale must be positive, not 0"),
        ("Upsample", "upsample_param { scale: 3 pad_out_h: true }", [IMAGE_SHAPE, IMAGE_SHAPE], "need scale 2"),
        ("Upsample", "", [IMAGE_SHAPE, (2, 4, 5, 5)], "data and mask must have equal shapes"),
        ("UnPooling", "", [IMAGE_SHAPE, IMAGE_SHAPE], "kernel_size .* must be set"),
        ("Unpooling", "unpooling_param { unpool: AVE unpool_size: 9 }", [IMAGE_SHAPE], "kernel_size .* must be set"),
        (
            "Unpooling",
            "unpooling_param { unpool: TILE unpool_size: 4 kernel_size: 2 stride: 2 }",
            [IMAGE_SHAPE],
            r"the last window would start at \(8, 10\), outside the top of \(4, 4\)",
        ),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Any], message: str) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{message}"):
        Net(net_text(layer_type, text, shapes, tops=layer_type != "MatWrite"), "TRAIN")


@pytest.mark.parametrize(
    "upsampling",
    [
        'type: "Upsample" upsample_param { scale: 2 }',
        'type: "Unpooling" unpooling_param { unpool: MAX kernel_size: 2 stride: 2 unpool_size: 4 }',
    ],
)
def test_pooling_masks_get_no_gradient(upsampling: str) -> None:
    """SegNet and DeconvNet are trained like this, without propagate_down."""
    net = Net(
        'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 dim: 4 dim: 4 } } }'
        'layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 2 '
        'kernel_size: 1 weight_filler { type: "constant" value: 1 } } }'
        'layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" top: "mask" pooling_param { kernel_size: 2 '
        "stride: 2 } }"
        f'layer {{ name: "upsampling" bottom: "pool" bottom: "mask" top: "upsampling" {upsampling} }}'
        'layer { name: "size" type: "Reduction" bottom: "upsampling" top: "size" loss_weight: 1 }'
    )
    net.graph.check_backward()
    params, state = net.init(jax.random.key(0))
    data = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)
    grads = jax.grad(lambda params: net.loss(params, state, {"data": data}, jax.random.key(0))[0])(params)
    channel_sums = (
        data.reshape(2, 2, 2, 2, 2).max((2, 4)).sum((1, 2))
    )  # of each channel's windows; each goes to its place
    np.testing.assert_allclose(
        np.asarray(grads["conv"]["weight"]).reshape(2, 2), [channel_sums, channel_sums], rtol=1e-6
    )
