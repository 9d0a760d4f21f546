"""C3D's layers: both spellings are equal, pooling against a loop, and refusals."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layer_nets import net_text

from caffejax.errors import GraphError
from caffejax.net import Net

RANDOM = np.random.default_rng(0)
VOLUME = (2, 2, 5, 7, 6)


def run(kind: str, text: str, *bottoms: Any) -> tuple[Any, Any]:
    """The top, and the gradient of the sum of its squares."""
    built = Net(net_text(kind, text, [np.shape(b) for b in bottoms]))
    params, state = built.init(jax.random.key(0))

    def total(x: Any) -> Any:
        inputs = {"b0": x, **{f"b{i}": jnp.asarray(b, jnp.float32) for i, b in enumerate(bottoms) if i}}
        top = built.apply(params, state, inputs)[0]["t0"]
        return jnp.sum(jnp.square(top)), top

    (_, top), diff = built.jit(jax.value_and_grad(total, has_aux=True))(jnp.asarray(bottoms[0], jnp.float32))
    return top, diff


WINDOW = "kernel_size: 3 kernel_depth: 2 stride: 2 temporal_stride: 1 pad: 1"
FILL = 'weight_filler { type: "gaussian" std: 1 }'


@pytest.mark.parametrize(
    ("kind", "first", "second", "text"),
    [
        ("Convolution3D", "convolution_param", "convolution3d_param", f"{WINDOW} temporal_pad: 1 num_output: 3 {FILL}"),
        ("Deconvolution3D", "convolution_param", "convolution3d_param", f"{WINDOW} num_output: 3 {FILL}"),
        ("Pooling3D", "pooling_param", "pooling3d_param", f"pool: AVE {WINDOW}"),
    ],
)
def test_both_spellings_are_one(kind: str, first: str, second: str, text: str) -> None:
    x = RANDOM.normal(size=VOLUME)
    for one, other in zip(*(run(kind, f"{name} {{ {text} }}", x) for name in (first, second)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize(("depth", "size", "step", "stride"), [(2, 3, 2, 2), (1, 2, 2, 2), (3, 3, 1, 1)])
def test_pooling_by_a_loop(method: str, depth: int, size: int, step: int, stride: int) -> None:
    x = np.round(RANDOM.normal(size=VOLUME))  # with equal maxima
    text = f"kernel_size: {size} kernel_depth: {depth} stride: {stride} temporal_stride: {step}"
    top, diff = run("Pooling3D", f"pooling3d_param {{ pool: {method} {text} }}", x)
    kernel, steps = (depth, size, size), (step, stride, stride)
    out = [-(-(n - k) // s) + 1 for n, k, s in zip(VOLUME[2:], kernel, steps, strict=True)]
    expected, wanted_diff = np.zeros((*VOLUME[:2], *out)), np.zeros(VOLUME)
    for position in itertools.product(*map(range, out)):
        cells = (..., *(slice(i * s, i * s + k) for i, s, k in zip(position, steps, kernel, strict=True)))
        part = x[cells]
        if method == "MAX":
            value = part.max((2, 3, 4), keepdims=True)
            wanted_diff[cells] += 2 * value * (part == value)
        else:
            value = part.mean((2, 3, 4), keepdims=True)
            wanted_diff[cells] += 2 * value / part[0, 0].size
        expected[(..., *position)] = value[..., 0, 0, 0]
    np.testing.assert_allclose(top, expected, atol=1e-5)
    np.testing.assert_allclose(diff, wanted_diff, atol=1e-4)


def test_deconvolution_has_a_bias_unless_convolution_param_says_otherwise() -> None:
    settings = f"convolution3d_param {{ {WINDOW} num_output: 3 bias_term: false }}"
    shapes = [VOLUME]
    assert len(Net(net_text("Deconvolution3D", settings, shapes)).graph.layer("layer").params) == 2
    without = f"{settings} convolution_param {{ bias_term: false }}"
    assert len(Net(net_text("Deconvolution3D", without, shapes)).graph.layer("layer").params) == 1
    assert len(Net(net_text("Convolution3D", settings, shapes)).graph.layer("layer").params) == 1


def test_voxels_without_a_class_count_only_in_the_number_of_voxels() -> None:
    scores = RANDOM.normal(size=(1, 2, 1, 2, 2))
    prob = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    labels = np.array([0, 1, 2, 255.0]).reshape(1, 1, 1, 2, 2)
    built = Net(net_text("VoxelSoftmaxLoss", "", [scores.shape, labels.shape]))

    def loss(x: Any) -> Any:
        return built.apply({}, {}, {"b0": x, "b1": jnp.asarray(labels, jnp.float32)})[0]["t0"]

    value, diff = jax.value_and_grad(loss)(jnp.asarray(scores, jnp.float32))
    np.testing.assert_allclose(value, -(np.log(prob[0, 0, 0, 0, 0]) + np.log(prob[0, 1, 0, 0, 1])) / 4, rtol=1e-5)
    expected = prob.copy()
    expected[0, 0, 0, 0, 0] -= 1
    expected[0, 1, 0, 0, 1] -= 1
    np.testing.assert_allclose(diff, expected / 4, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "text", "shapes", "match"),
    [
        (
            "Convolution3D",
            "convolution3d_param { num_output: 2 kernel_size: 3 }",
            [VOLUME],
            "kernel_depth must be set",
        ),
        ("Convolution3D", f"convolution3d_param {{ {WINDOW} num_output: 2 }}", [VOLUME[1:]], "5 axes"),
        (
            "Convolution3D",
            f"convolution3d_param {{ {WINDOW} num_output: 2 filter_group: 3 }}",
            [VOLUME],
            "num_output 2 must be a multiple of filter_group 3",
        ),
        (
            "Convolution3D",
            "convolution_param { num_output: 2 kernel_h: 3 kernel_w: 3 }",
            [VOLUME],
            "kernel_h does not apply",
        ),
        ("Convolution3D", f"convolution_param {{ {WINDOW} num_output: 2 kernel_size: 2 }}", [VOLUME], "set once"),
        ("Pooling3D", "pooling3d_param { kernel_size: 2 kernel_depth: 2 stride: 0 }", [VOLUME], "must be positive"),
        (
            "Pooling3D",
            "pooling3d_param { kernel_size: 2 kernel_depth: 2 pad: 1 }",
            [VOLUME],
            "padding, but pad is 1",
        ),
        ("Pooling3D", "pooling3d_param { kernel_size: 8 kernel_depth: 2 }", [VOLUME], "begins|does not fit"),
        ("Pooling3D", "pooling3d_param { pool: STOCHASTIC kernel_size: 2 kernel_depth: 2 }", [VOLUME], "STOCHASTIC"),
        (
            "Pooling3D",
            "pooling3d_param { kernel_size: 2 kernel_depth: 2 stride_d: 2 }",
            [VOLUME],
            "stride_d does not apply",
        ),
    ],
)
def test_invalid_settings_are_refused(kind: str, text: str, shapes: list[tuple[int, ...]], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(kind, text, shapes))


def dims(name: str, numbers: tuple[int, ...]) -> str:
    return f"{name} {{ {' '.join(f'dim: {n}' for n in numbers)} }}"


def test_nd_convolution_is_convolution() -> None:
    x, kernel, stride, pad = RANDOM.normal(size=(2, 4, 5, 7, 6)), (2, 3, 1), (1, 2, 3), (1, 0, 2)
    settings = f"{dims('kernel_shape', kernel)} {dims('stride_shape', stride)} {dims('pad_shape', pad)}"
    fields = zip(("kernel_size", "stride", "pad"), (kernel, stride, pad), strict=True)
    theirs = " ".join(f"{name}: {n}" for name, numbers in fields for n in numbers)
    text = "convolution_param {{ num_output: 6 group: 2 {} {} }}"
    result = run("NdConvolution", text.format(settings, FILL), x)
    for one, other in zip(result, run("Convolution", text.format(theirs, FILL), x), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "expected_size"),
    [
        ((1, 2, 2), (1, 2, 2), (0, 0, 0), (5, 4, 3)),
        ((2, 2, 2), (2, 2, 2), (0, 1, 1), (3, 4, 4)),
        ((5, 7, 6), (1, 1, 1), (0, 0, 0), (1, 1, 1)),
    ],
)
def test_nd_pooling_by_a_loop(
    kernel: tuple[int, ...], stride: tuple[int, ...], pad: tuple[int, ...], expected_size: tuple[int, ...], method: str
) -> None:
    x = RANDOM.normal(size=VOLUME)
    text = f"{dims('kernel_shape', kernel)} {dims('stride_shape', stride)} {dims('pad_shape', pad)}"
    top, diff = run("NdPooling", f"pooling_param {{ pool: {method} {text} }}", x)
    assert top.shape == (2, 2, *expected_size)
    expected = np.zeros(VOLUME)
    for position in itertools.product(*map(range, expected_size)):
        ranges, cells = [], 1
        for i, k, s, a, n in zip(position, kernel, stride, pad, VOLUME[2:], strict=True):
            begin = i * s - a
            ranges.append(slice(max(begin, 0), min(begin + k, n)))
            cells *= min(begin + k, n + a) - begin
        part, top_index = x[(..., *ranges)], (..., *position)
        number = part.max((2, 3, 4)) if method == "MAX" else part.sum((2, 3, 4)) / cells
        np.testing.assert_allclose(top[top_index], number, rtol=1e-5, atol=1e-6)
        share = (part == number[..., None, None, None]) if method == "MAX" else np.ones_like(part) / cells
        expected[(..., *ranges)] += 2 * number[..., None, None, None] * share
    np.testing.assert_allclose(diff, expected, rtol=1e-4, atol=1e-5)


def test_nd_pooling_of_all() -> None:
    x = RANDOM.normal(size=VOLUME)
    top, _ = run("NdPooling", "pooling_param { global_pooling: true }", x)
    np.testing.assert_allclose(top[..., 0, 0, 0], x.max((2, 3, 4)), rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "text", "match"),
    [
        ("NdConvolution", "num_output: 2", "kernel_shape must have 3 values"),
        ("NdConvolution", f"num_output: 2 {dims('kernel_shape', (2, 2))}", "3 values of dim, .* not 2"),
        ("NdConvolution", f"num_output: 3 group: 2 {dims('kernel_shape', (2, 2, 2))}", "group 2 must divide"),
        ("NdConvolution", f"num_output: 2 {dims('kernel_shape', (2, 9, 2))}", "kernel|fit|larger"),
        ("NdConvolution", f"{dims('kernel_shape', (2, 2, 2))}", "num_output must be positive"),
        ("NdPooling", dims("kernel_shape", (0, 2, 2)), "must be positive"),
        ("NdPooling", dims("kernel_shape", (9, 2, 2)), "does not fit the volume"),
        ("NdPooling", f"{dims('kernel_shape', (1, 2, 2))} {dims('pad_shape', (1, 0, 0))}", "must be less than"),
        ("NdPooling", f"{dims('kernel_shape', (1, 1, 1))} {dims('stride_shape', (3, 1, 1))}", "begins beyond"),
        ("NdPooling", f"pool: STOCHASTIC {dims('kernel_shape', (1, 1, 1))}", "use MAX or AVE"),
    ],
)
def test_nd_windows_that_do_not_fit(kind: str, text: str, match: str) -> None:
    param = "convolution_param" if kind == "NdConvolution" else "pooling_param"
    with pytest.raises(GraphError, match=match):
        Net(net_text(kind, f"{param} {{ {text} }}", [(2, 2, 5, 7, 6)]))
