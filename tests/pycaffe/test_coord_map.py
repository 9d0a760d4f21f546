"""Coordinate maps compared with the geometry of running nets, and crops with their expected regions."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import caffejax
from caffejax.pycaffe import NetSpec
from caffejax.pycaffe import layers as L
from caffejax.pycaffe import params as P
from caffejax.pycaffe.coord_map import (
    AxisMismatchException,
    UndefinedMapException,
    compose,
    conv_params,
    coord_map,
    coord_map_from_to,
    crop,
    crop_params,
    inverse,
)
from caffejax.pycaffe.net_spec import Top

SIZE = 96


def make_input(*dims: int) -> Top:
    return L.Input(shape=dict(dim=list(dims or (1, 1, SIZE, SIZE))))


def unit_filter_settings(**settings: Any) -> dict[str, Any]:
    return dict(num_output=1, bias_term=False, weight_filler=dict(type="constant", value=1), **settings)


def conv(x: Top, **settings: Any) -> Top:
    return L.Convolution(x, **unit_filter_settings(**settings))


def deconv(x: Top, **settings: Any) -> Top:
    return L.Deconvolution(x, convolution_param=unit_filter_settings(**settings))


def average(x: Top, **settings: Any) -> Top:
    return L.Pooling(x, pool=P.Pooling.AVE, **settings)


CHAINS: dict[str, Callable[[Top], Top]] = {
    "nothing": lambda x: x,
    "neuron": lambda x: L.ReLU(x, in_place=True),
    "conv": lambda x: conv(x, kernel_size=5),
    "padded": lambda x: conv(x, kernel_size=5, pad=2),
    "strided": lambda x: conv(x, kernel_size=3, stride=2, pad=1),
    "even kernel": lambda x: conv(x, kernel_size=4, stride=3, pad=1),
    "dilated": lambda x: conv(x, kernel_size=3, dilation=4, pad=2),
    "separate sizes": lambda x: conv(x, kernel_h=3, kernel_w=5, pad_h=1, pad_w=0, stride=2),
    "pool": lambda x: average(x, kernel_size=3, stride=2),
    "conv, pool, conv": lambda x: conv(average(conv(x, kernel_size=5), kernel_size=2, stride=2), kernel_size=3, pad=3),
    "deconv": lambda x: deconv(x, kernel_size=4, stride=2, pad=1),
    "conv and deconv": lambda x: deconv(
        average(conv(x, kernel_size=3, pad=5), kernel_size=2, stride=2), kernel_size=4, stride=2
    ),
    "deconv and conv": lambda x: conv(
        deconv(average(x, kernel_size=4, stride=4), kernel_size=8, stride=4), kernel_size=3
    ),
    "crop": lambda x: L.Crop(conv(x, kernel_size=3), L.Input(shape=dict(dim=[1, 1, 60, 60])), axis=2, offset=[7, 3]),
    "crop of one axis": lambda x: L.Crop(L.ReLU(x), L.Input(shape=dict(dim=[1, 1, 1, 60])), axis=3, offset=11),
    "sum of two branches": lambda x: L.Eltwise(
        conv(x, kernel_size=3, stride=2, pad=1), conv(x, kernel_size=1, stride=2)
    ),
}


def compute_centers(top: Top, image: Top) -> list[np.ndarray]:
    """Return the mean positions, along both axes, of the image pixels that the top depends on, by running the net."""
    n = NetSpec()
    n.image = image
    n.top = L.Power(top)
    proto = n.to_proto()
    proto.force_backward = True
    net = caffejax.Net(proto, "TEST")
    params, state = net.init(jax.random.key(0))
    other_inputs = {
        name: np.zeros(net.graph.blobs[name].shape, np.float32)
        for name in net.graph.input_layer_tops
        if name != "image"
    }

    def select_middle(pixels: jax.Array) -> tuple[jax.Array, jax.Array]:
        blob = net.apply(params, state, {"image": pixels, **other_inputs}, blobs=["top"])[0]["top"][0, 0]
        return blob[:, blob.shape[1] // 2], blob[blob.shape[0] // 2]

    jacobians = jax.jit(jax.jacobian(select_middle))(np.ones((1, 1, SIZE, SIZE), np.float32))
    weights = [np.asarray(w[:, 0, 0].sum(axis=2 - axis), np.float64) for axis, w in enumerate(jacobians)]
    with np.errstate(invalid="ignore"):  # some see nothing but padding
        return [w @ np.arange(SIZE) / w.sum(axis=1) for w in weights]


@pytest.mark.parametrize("chain", CHAINS)
def test_maps_agree_with_the_geometry_of_nets(chain: str) -> None:
    image = make_input()
    top = CHAINS[chain](image)
    first_axis, scale, shift = coord_map_from_to(top, image)
    for axis, result in enumerate(compute_centers(top, image)):
        axis_index = axis + 1 - (first_axis or 1)  # among the axes that the map speaks of
        a, b = (1, 0) if axis_index < 0 else (np.resize(values, 2)[axis_index] for values in (scale, shift))
        window = slice(len(result) // 2 - 6, len(result) // 2 + 6)  # whole periods of all strides, away from the edges
        expected = a * np.arange(len(result)) + b
        np.testing.assert_allclose(result[window].mean(), expected[window].mean(), atol=1e-3)
        np.testing.assert_allclose(result[window], expected[window], atol=1.01)  # deconvolutions alternate


def make_net_spec() -> NetSpec:
    n = NetSpec()
    n.data = make_input(2, 1, 100, 100)
    n.aux = make_input(2, 1, 20, 20)
    n.conv = L.Convolution(n.data, num_output=10, kernel_size=5, stride=2, pad=0)
    n.pool = L.Pooling(n.conv, pool=P.Pooling.MAX, kernel_size=2, stride=2, pad=0)
    n.deconv = L.Deconvolution(n.pool, num_output=10, kernel_size=4, stride=4, pad=0)
    return n


def test_conv_pool_deconv() -> None:
    n = make_net_spec()
    axis, scale, shift = coord_map_from_to(n.deconv, n.data)
    assert (axis, *scale, *shift) == (1, 1, 1.5)
    axis, scale, shift = coord_map_from_to(n.data, n.deconv)
    assert (axis, *scale, *shift) == (1, 1, -1.5)


def test_padding_shifts_coordinates() -> None:
    n = make_net_spec()
    old_map = coord_map_from_to(n.deconv, n.data)
    n = make_net_spec()
    pad = L.Convolution(n.data, num_output=10, kernel_size=5, stride=2, pad=4)
    new_map = coord_map_from_to(
        L.Deconvolution(L.Pooling(pad, kernel_size=2, stride=2), kernel_size=4, stride=4), n.data
    )
    assert new_map[:2] == old_map[:2]
    assert new_map[2] == old_map[2] - 4


def test_neuron_layers_keep_the_coordinates() -> None:
    n = make_net_spec()
    relu = L.ReLU(L.BatchNorm(L.Dropout(n.deconv)))
    assert coord_map_from_to(relu, n.data) == coord_map_from_to(n.deconv, n.data)
    assert coord_map_from_to(L.ReLU(n.data), n.data) == (None, 1, 0)


def test_more_than_two_spatial_axes() -> None:
    image = make_input(2, 3, 100, 100, 100)
    conv = L.Convolution(image, num_output=10, kernel_size=[3, 3, 3], stride=[1, 1, 1], pad=[0, 1, 2])
    pool = L.Pooling(conv, kernel_size=2, stride=2, pad=0)
    axis, scale, shift = coord_map_from_to(L.Deconvolution(pool, num_output=10, kernel_size=4, stride=2, pad=0), image)
    assert axis == 1
    np.testing.assert_array_equal(scale, [1, 1, 1])
    np.testing.assert_array_equal(shift, [0, -1, -2])


def test_crop_layers_shift_coordinates() -> None:
    n = make_net_spec()
    old_map = coord_map_from_to(n.deconv, n.data)
    first_crop = L.Crop(n.deconv, n.data, axis=2, offset=3)
    assert coord_map_from_to(first_crop, n.data)[2] == old_map[2] + 3
    second_crop = L.Crop(first_crop, n.data, crop_param=dict(axis=2, offset=2))
    assert coord_map_from_to(second_crop, n.data)[2] == old_map[2] + 5
    assert crop_params(second_crop.fn) == (2, 2)


def test_crop_finds_the_offset() -> None:
    image = make_input(1, 1, 50, 50)
    upsampled = L.Deconvolution(
        L.Pooling(L.Convolution(image, num_output=1, kernel_size=3, pad=10), kernel_size=2, stride=2),
        convolution_param=dict(num_output=1, kernel_size=4, stride=2),
    )
    cropped = crop(upsampled, image)
    assert coord_map_from_to(cropped, image) == (1, 1, 0)
    layer = cropped.to_proto().layer[-1]
    assert (layer.type, layer.crop_param.axis, list(layer.crop_param.offset)) == ("Crop", 2, [10])
    n = NetSpec()
    n.image, n.cropped = image, cropped
    assert caffejax.Net(n.to_proto(), "TEST").graph.blobs["cropped"].shape == (1, 1, 50, 50)


def test_the_reference_of_a_crop_has_no_coordinate_map() -> None:
    """The path through the second bottom of a Crop, which has another scale, is not followed."""
    image = make_input()
    small = L.Pooling(image, kernel_size=2, stride=2)
    assert coord_map_from_to(L.Crop(L.Power(image), small, axis=2, offset=5), image) == (1, 1, 5)


@pytest.mark.parametrize(
    ("make_tops", "error", "message"),
    [
        (lambda n: (L.InnerProduct(n.deconv, num_output=10), n.data), RuntimeError, "connected by spatial layers"),
        (lambda n: (n.aux, n.data), RuntimeError, "connected by spatial layers"),
        (lambda n: (n.pool, n.data), AssertionError, "scale mismatch"),
        (lambda n: (n.data, L.Convolution(n.data, kernel_size=3, pad=3)), AssertionError, "negative offset"),
        (lambda n: (n.data, L.Convolution(n.data, kernel_size=4)), AssertionError, "noninteger offset"),
        (lambda n: (L.Crop(n.conv, n.data, axis=3), n.data), AxisMismatchException, "axis"),
        (
            lambda n: (L.Convolution(n.data, kernel_size=[3, 3, 3]), L.Convolution(n.data, kernel_size=[2, 3])),
            AxisMismatchException,
            "spatial axes",
        ),
    ],
)
def test_invalid_crops_raise_errors(make_tops: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        crop(*make_tops(make_net_spec()))


def test_layers_without_a_map_raise_an_error() -> None:
    for layer in (
        L.InnerProduct(make_input()),
        L.Pooling(make_input(), global_pooling=True),
        L.Concat(make_input(), make_input()),
    ):
        with pytest.raises(UndefinedMapException, match=layer.fn.type_name):
            coord_map(layer.fn)


def test_conv_params_and_crop_params_have_defaults() -> None:
    axis, stride, kernel, pad = conv_params(L.Convolution(make_input(), kernel_size=3, dilation=2).fn)
    assert (axis, *stride, *kernel, *pad) == (1, 1, 5, 0)
    assert crop_params(L.Crop(make_input(), make_input()).fn) == (2, 0)


def test_a_map_composed_with_its_inverse_is_the_identity() -> None:
    mapping = (1, np.array([0.5, 2.0]), np.array([3.0, -1.0]))
    axis, scale, shift = compose(mapping, inverse(mapping))
    assert axis == 1
    np.testing.assert_array_equal([scale, shift], [[1, 1], [0, 0]])


def find_fcn_offsets(*skips: int) -> list[int]:
    """Return the offsets of all crops in a fully convolutional VGG-16 with skips from these pooling layers."""
    image = make_input(1, 3, 500, 500)
    x, pools = image, {}
    for block, (convs, channels) in enumerate([(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)], 1):
        for i in range(convs):
            pad = 100 if (block, i) == (1, 0) else 1
            x = L.ReLU(L.Convolution(x, kernel_size=3, pad=pad, num_output=channels), in_place=True)
        x = pools[block] = L.Pooling(x, pool=P.Pooling.MAX, kernel_size=2, stride=2)
    x = L.Dropout(L.ReLU(L.Convolution(x, kernel_size=7, pad=0, num_output=4096), in_place=True), in_place=True)
    x = L.Convolution(x, kernel_size=1, num_output=21)
    stride = 32
    for skip in skips:
        x = L.Deconvolution(x, convolution_param=dict(num_output=21, kernel_size=4, stride=2, bias_term=False))
        x = L.Eltwise(x, crop(L.Convolution(pools[skip], num_output=21, kernel_size=1, pad=0), x))
        stride //= 2
    x = L.Deconvolution(
        x, convolution_param=dict(num_output=21, kernel_size=2 * stride, stride=stride, bias_term=False)
    )
    return [layer.crop_param.offset[0] for layer in crop(x, image).to_proto().layer if layer.type == "Crop"]


@pytest.mark.parametrize(
    ("skips", "offsets"), [((), [19]), ((4,), [5, 27]), ((4, 3), [5, 9, 31])], ids=["FCN-32s", "FCN-16s", "FCN-8s"]
)
def test_the_published_offsets_of_fully_convolutional_nets(skips: tuple[int, ...], offsets: list[int]) -> None:
    assert find_fcn_offsets(*skips) == offsets
