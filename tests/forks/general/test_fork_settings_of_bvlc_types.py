"""Settings that forks added to BVLC's types, compared with plain NumPy."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.core.layers.fillers import fill, scale_filler
from caffejax.core.program.net import Net
from caffejax.core.schema import caffe_pb2

RNG = np.random.default_rng(3)
KEY = jax.random.key(0)


def get_statistics(state: Any) -> list[Any]:
    return [state["layer"][name] for name in ("mean", "variance", "scale_factor")]


def make_net(param: str, *shapes: tuple[int, ...], tops: int = 1, phase: Any = "TEST", **options: Any) -> Net:
    inputs = "".join(
        f'layer {{ name: "b{i}" type: "Input" top: "b{i}" input_param {{ shape {{ '
        f"{' '.join(f'dim: {n}' for n in shape)} }} }} }}\n"
        for i, shape in enumerate(shapes)
    )
    names = "".join(f'bottom: "b{i}" ' for i in range(len(shapes))) + "".join(f'top: "t{i}" ' for i in range(tops))
    return Net(f'{inputs}layer {{ name: "layer" {names} {param} }}\n', phase, **options)


def make_variables(net: Net, *blobs: np.ndarray) -> Any:
    """Return the net's variables with these blobs of its layer, in Caffe's order."""
    variables = net.init(KEY)
    for param, blob in zip(net.graph.layer("layer").params, blobs, strict=False):
        variables[not param.spec.learnable]["layer"][param.slot.name] = np.float32(blob)
    return variables


def run(net: Net, weights: tuple[np.ndarray, ...], *inputs: np.ndarray, key: Any = None) -> Any:
    v = make_variables(net, *weights)
    blobs, state = net.apply(v.params, v.state, {f"b{i}": x for i, x in enumerate(inputs)}, key=key)
    return SimpleNamespace(blobs=blobs, state=state)


X = RNG.normal(size=(4, 3, 5, 6)).astype("f")
MEAN, VARIANCE, FACTOR, BIAS = (RNG.uniform(0.5, 2, 3).astype("f") for _ in range(4))


def normalize(x: np.ndarray, mean: np.ndarray, variance: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    return (x - mean[:, None, None]) / np.sqrt(variance[:, None, None] + eps)


def scale_and_shift(x: np.ndarray) -> np.ndarray:
    return x * FACTOR[:, None, None] + BIAS[:, None, None]


@pytest.mark.parametrize("kernels", ["fast", "reference"])
@pytest.mark.parametrize("reserved", [1, 0, 2.5])
def test_batch_norm_with_scale_and_bias_uses_stored_statistics(kernels: Any, reserved: float) -> None:
    """NVIDIA Caffe stores averages, and never reads its blob 2, which is 0 in files of 0.16.0 to 0.16.4."""
    model = make_net('type: "BatchNorm" batch_norm_param { scale_bias: true }', X.shape, kernels=kernels)
    assert [p.spec.shape for p in model.graph.layers[-1].params] == [(3,), (3,), (1,), (3,), (3,)]
    blobs = (MEAN, VARIANCE, np.array([reserved]), FACTOR, BIAS)
    np.testing.assert_allclose(
        run(model, blobs, X).blobs["t0"], scale_and_shift(normalize(X, MEAN, VARIANCE)), rtol=2e-5, atol=2e-5
    )


@pytest.mark.parametrize("kernels", ["fast", "reference"])
def test_nvidias_statistics_are_moving_averages_and_intels_are_sums(kernels: Any) -> None:
    mean, variance = X.mean((0, 2, 3)), X.var((0, 2, 3))
    expected = scale_and_shift(normalize(X, mean, variance))
    blobs = (MEAN, VARIANCE, np.ones(1), FACTOR, BIAS)
    settings = "moving_average_fraction: 0.75"
    model = make_net(
        f'type: "BatchNorm" batch_norm_param {{ scale_bias: true {settings} }}', X.shape, phase="TRAIN", kernels=kernels
    )
    out = run(model, blobs, X)
    np.testing.assert_allclose(out.blobs["t0"], expected, rtol=1e-4, atol=1e-4)
    state = get_statistics(out.state)
    for result, array in zip(state, (MEAN * 0.75 + mean / 4, VARIANCE * 0.75 + variance / 4, [1]), strict=True):
        np.testing.assert_allclose(result, array, rtol=1e-5)
    first_pass = run(model, (MEAN, VARIANCE, np.zeros(1), FACTOR, BIAS), X)  # there are none yet: the batch's own
    for result, array in zip(get_statistics(first_pass.state), (mean, variance, [1]), strict=True):
        np.testing.assert_allclose(result, array, rtol=1e-4, atol=1e-6)

    model = make_net(
        f'type: "BatchNorm" batch_norm_param {{ filler {{ value: 1 }} {settings} }}', X.shape, phase="TRAIN"
    )
    out, n = run(model, blobs, X), X.size / 3
    np.testing.assert_allclose(out.blobs["t0"], expected, rtol=1e-4, atol=1e-4)
    sums = (MEAN * 0.75 + mean, VARIANCE * 0.75 + variance * n / (n - 1), [1.75])
    for result, array in zip(get_statistics(out.state), sums, strict=True):
        np.testing.assert_allclose(result, array, rtol=1e-5)


def test_batch_norm_uses_fillers_and_does_not_train_statistics() -> None:
    model = make_net(
        'type: "BatchNorm" param { lr_mult: 1 } '
        "batch_norm_param { scale_filler { value: 3 } bias_filler { value: 4 } }",
        X.shape,
    )
    assert [p.lr_mult for p in model.graph.layers[-1].params] == [0, 0, 0, 1, 1]
    assert [float(b[0]) for b in model.init(KEY).params["layer"].values()] == [3, 4]


@pytest.mark.parametrize("fork", ["hole: 2", "hole_h: 2 hole_w: 2", "dilation_h: 2 dilation_w: 2"])
@pytest.mark.parametrize("layer_type", ["Convolution", "Im2col", "Deconvolution"])
def test_hole_equals_dilation(fork: str, layer_type: str) -> None:
    param = 'type: "%s" convolution_param { num_output: 2 kernel_size: 2 pad: 1 %s }'
    dilation_net, fork_net = (
        make_net(param % (layer_type, "dilation: 2"), X.shape),
        make_net(param % (layer_type, fork), X.shape),
    )
    blobs = tuple(RNG.normal(size=p.spec.shape) for p in dilation_net.graph.layers[-1].params)
    np.testing.assert_array_equal(run(dilation_net, blobs, X).blobs["t0"], run(fork_net, blobs, X).blobs["t0"])
    for fields, message in (("hole: 2 dilation: 2", "mean the same"), ("hole_h: 2", "both of hole_h and hole_w")):
        with pytest.raises(CaffejaxError, match=message):
            make_net(param % (layer_type, fields), X.shape)


def test_dropout_with_scale_train_and_sample_weights_test() -> None:
    unscaled_dropout = 'type: "Dropout" dropout_param { dropout_ratio: 0.75 scale_train: false }'
    np.testing.assert_allclose(run(make_net(unscaled_dropout, X.shape), (), X).blobs["t0"], X / 4, rtol=1e-6)
    train_top = np.asarray(run(make_net(unscaled_dropout, X.shape, phase="TRAIN"), (), X, key=KEY).blobs["t0"])
    assert set(np.unique(train_top / X)) == {0, 1}
    sampled_dropout = 'type: "Dropout" dropout_param { dropout_ratio: 0.75 sample_weights_test: true }'
    test_top = np.asarray(run(make_net(sampled_dropout, X.shape), (), X, key=KEY).blobs["t0"])
    np.testing.assert_allclose(np.unique(np.round(test_top / X, 4)), [0, 4])


def test_accuracy_with_min_is_better() -> None:
    distances, labels = RNG.normal(size=(50, 7)).astype("f"), RNG.integers(0, 7, 50).astype("f")
    param = 'type: "Accuracy" accuracy_param { top_k: 2 min_is_better: true }'
    ranks = (distances < np.take_along_axis(distances, labels.astype(int)[:, None], 1)).sum(1)
    np.testing.assert_allclose(
        run(make_net(param, (50, 7), (50,)), (), distances, labels).blobs["t0"], np.mean(ranks < 2)
    )


def test_scale_clamps_its_factor() -> None:
    model = make_net('type: "Scale" scale_param { min_value: 1 max_value: 1.5 }', X.shape)
    clamped_factor = np.clip(FACTOR, 1, 1.5)
    np.testing.assert_allclose(run(model, (FACTOR,), X).blobs["t0"], X * clamped_factor[:, None, None], rtol=1e-6)


def test_initial_values_of_fillers_of_forks() -> None:
    model = Net(
        'layer { name: "p" type: "Parameter" top: "p" parameter_param { shape { dim: 4 dim: 9 } '
        'blob_filler { type: "gaussian_unitball" } } }\n'
    )
    (blob,) = model.init(KEY).params["p"].values()
    np.testing.assert_allclose(np.linalg.norm(blob, axis=1), 1, rtol=1e-5)
    plain, sloped = (caffe_pb2.FillerParameter(type="msra", alpha=a) for a in (0, 2))
    np.testing.assert_allclose(fill(plain, KEY, (4, 9)), fill(sloped, KEY, (4, 9)) * np.sqrt(5), rtol=1e-5)
    with pytest.raises(CaffejaxError, match=r"layer 'layer' \(InnerProduct\): unknown filler type 'msr'"):
        make_net('type: "InnerProduct" inner_product_param { num_output: 2 weight_filler { type: "msr" } }', (2, 3))
    with pytest.raises(CaffejaxError, match=r"filler 'gabor' \(Intel Caffe\)"):
        make_net('type: "InnerProduct" inner_product_param { num_output: 2 weight_filler { type: "gabor" } }', (2, 3))


W, B = RNG.normal(size=(6, 5)).astype("f"), RNG.normal(size=6).astype("f")
ROWS = RNG.normal(size=(4, 5)).astype("f")


def test_inner_product_with_weights_from_bottoms() -> None:
    template = 'type: "InnerProduct" inner_product_param { bias_term: %s }'
    np.testing.assert_allclose(
        run(make_net(template % "false", (4, 5), (6, 5)), (), ROWS, W).blobs["t0"], ROWS @ W.T, rtol=1e-4, atol=1e-5
    )
    expected = ROWS @ W.T + B
    net_with_bias_blob, net_with_bias_bottom = (
        make_net(template % "true", (4, 5), (6, 5)),
        make_net(template % "true", (4, 5), (6, 5), (6,)),
    )
    np.testing.assert_allclose(run(net_with_bias_blob, (B,), ROWS, W).blobs["t0"], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run(net_with_bias_bottom, (), ROWS, W, B).blobs["t0"], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(CaffejaxError, match=r"bottom 1, the weight, must have 5 inputs .* shape \(6, 4\)"):
        make_net(template % "false", (4, 5), (6, 4))
    with pytest.raises(CaffejaxError, match="bottom 2, the bias"):
        make_net(template % "true", (4, 5), (6, 5), (5,))


def test_inner_product_of_unit_rows() -> None:
    model = make_net('type: "InnerProduct" inner_product_param { num_output: 6 normalize: true }', (4, 5))
    unit_weight = W / np.sqrt((W**2).sum(1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(run(model, (W, B), ROWS).blobs["t0"], ROWS @ unit_weight.T + B, rtol=1e-4, atol=1e-5)


SCORES, LABELS = RNG.normal(size=(3, 4, 2, 2)).astype("f"), RNG.integers(0, 4, (3, 2, 2)).astype("f")
LOG_PROB = SCORES - np.log(np.exp(SCORES).sum(1, keepdims=True))
LABEL_LOSSES = -np.take_along_axis(LOG_PROB, LABELS.astype(int)[:, None], 1)[:, 0]


@pytest.mark.parametrize("ignore", ["", "ignore_label: 2"])
def test_softmax_loss_with_weighted_classes(ignore: str) -> None:
    is_counted = (LABELS != 2) if ignore else np.ones_like(LABELS)
    weights = np.array([0.5, 2, 1, 3], "f")
    settings = " ".join(f"class_weighting: {w}" for w in weights)
    param = f'type: "SoftmaxWithLoss" loss_param {{ weight_by_label_freqs: true {ignore} %s }}'
    shapes = SCORES.shape, LABELS.shape
    for text, w in ((settings, weights), ("", 1 / np.maximum([np.sum(c == LABELS) for c in range(4)], 1))):
        expected = np.sum(LABEL_LOSSES * w[LABELS.astype(int)] * is_counted) / is_counted.sum()
        result = run(make_net(param % text, *shapes, phase="TRAIN"), (), SCORES, LABELS).blobs["t0"]
        np.testing.assert_allclose(result, expected, rtol=1e-5)
    with pytest.raises(CaffejaxError, match=r"class_weighting must have .* each of the 4 classes, not 1"):
        make_net(param % "class_weighting: 1", *shapes)


def test_softmax_loss_returns_the_loss_of_each_label() -> None:
    weights = "loss_weight: 1 loss_weight: 0 loss_weight: 0 loss_param { ignore_label: 2 }"
    model = make_net(f'type: "SoftmaxWithLoss" {weights}', SCORES.shape, LABELS.shape, tops=3)
    tops = run(model, (), SCORES, LABELS).blobs
    losses = np.where(LABELS == 2, 0, LABEL_LOSSES)
    np.testing.assert_allclose(tops["t0"], losses.sum() / (LABELS != 2).sum(), rtol=1e-5)
    np.testing.assert_allclose(tops["t1"], np.exp(LOG_PROB), rtol=1e-4)
    np.testing.assert_allclose(tops["t2"], losses, rtol=1e-4, atol=1e-6)


def test_pre_fixed_normalizer_divides_the_loss() -> None:
    param = 'type: "SoftmaxWithLoss" loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 7 }'
    result = run(make_net(param, SCORES.shape, LABELS.shape), (), SCORES, LABELS).blobs["t0"]
    np.testing.assert_allclose(result, LABEL_LOSSES.sum() / 7, rtol=1e-5)


def test_sigmoid_loss_with_weights() -> None:
    x, t, w = RNG.normal(size=(3, 4)), RNG.uniform(size=(3, 4)), RNG.uniform(size=(3, 4))
    model = make_net('type: "SigmoidCrossEntropyLoss"', (3, 4), (3, 4), (3, 4))
    p = 1 / (1 + np.exp(-x))
    expected = -np.sum(w * (t * np.log(p) + (1 - t) * np.log(1 - p))) / w.sum()
    inputs = [a.astype("f") for a in (x, t, w)]
    np.testing.assert_allclose(run(model, (), *inputs).blobs["t0"], expected, rtol=1e-5)
    np.testing.assert_array_equal(run(model, (), *inputs[:2], 0 * inputs[2]).blobs["t0"], 0)


def test_deeplab_softmaxloss_param_sets_ignore_label() -> None:
    text = """input: "b0" input_dim: 3 input_dim: 4 input_dim: 2 input_dim: 2
      input: "b1" input_dim: 3 input_dim: 1 input_dim: 2 input_dim: 2
      layers { name: "layer" type: SOFTMAX_LOSS bottom: "b0" bottom: "b1" top: "t0" softmaxloss_param { %s } }\n"""
    model = Net(text % "ignore_label: 2")
    is_counted = LABELS != 2
    result = run(model, (), SCORES, LABELS.reshape(3, 1, 2, 2)).blobs["t0"]
    np.testing.assert_allclose(result, (LABEL_LOSSES * is_counted).sum() / is_counted.sum(), rtol=1e-5)
    with pytest.raises(CaffejaxError, match=r"softmaxloss_param\.weight_source \(of deeplab\) is not supported"):
        Net(text % 'weight_source: "weights.txt"')


def test_bn_stats_batch_size_of_the_net_applies_to_batch_norm() -> None:
    text = """bn_stats_batch_size: 2 layer { name: "x" type: "Input" top: "x" input_param { shape { dim: %d dim: 3 } } }
      layer { name: "bn" type: "BatchNorm" bottom: "x" top: "y" }"""
    assert Net(text % 4, "TRAIN").graph.blobs["y"].shape == (4, 3)
    assert Net(text % 5, "TEST").graph.blobs["y"].shape == (5, 3)
    with pytest.raises(CaffejaxError, match=r"layer 'bn'.*the batch size 5 must be a multiple of stats_batch_size 2"):
        Net(text % 5, "TRAIN")


@pytest.mark.parametrize("kernels", ["fast", "reference"])
@pytest.mark.parametrize("settings", ["", "filler { value: 1 }", "bias_term: false"])
def test_stats_batch_size_computes_statistics_of_each_part(settings: str, kernels: Any) -> None:
    text = f'type: "BatchNorm" batch_norm_param {{ moving_average_fraction: 0.5 stats_batch_size: 2 {settings} }}'
    model = make_net(text, X.shape, phase="TRAIN", kernels=kernels)
    half_net = make_net(text, (2, *X.shape[1:]), phase="TRAIN", kernels=kernels)
    blobs: Any = (
        MEAN,
        VARIANCE,
        np.ones(1),
        *((FACTOR, BIAS) if "filler" in settings else (FACTOR,) if settings else ()),
    )
    assert [p.spec.shape for p in model.graph.layers[-1].params] == [np.shape(b) for b in blobs]
    d_top = RNG.normal(size=X.shape).astype("f")

    def compute_loss(model: Net, x: Any, d_top: Any) -> Any:
        v = make_variables(model, *blobs)
        result, state = model.apply(v.params, v.state, {"b0": x})
        return jnp.sum(result["t0"] * d_top), (result["t0"], get_statistics(state))

    passes = [jax.value_and_grad(compute_loss, 1, has_aux=True)(n, x, d) for n, x, d in
              ((model, X, d_top), (half_net, X[:2], d_top[:2]), (half_net, X[2:], d_top[2:]))]  # fmt: skip
    ((_, (top, state)), diff), *halves = passes
    np.testing.assert_allclose(top, np.concatenate([h[0][1][0] for h in halves]), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(diff, np.concatenate([h[1] for h in halves]), rtol=1e-3, atol=1e-5)
    for i, (initial, actual) in enumerate(zip(blobs, state, strict=False)):
        first_update, second_update = (np.asarray(h[0][1][1][i]) - 0.5 * initial for h in halves)
        np.testing.assert_allclose(actual, 0.25 * initial + 0.5 * first_update + second_update, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "blobs"),
    [
        ("use_weight_bias: true", 5),
        ("use_weight_bias: true bias_term: false", 4),
        ("bias_term: true", 5),
        ("use_weight_bias: false", 3),
        ("use_weight_bias: false filler { value: 2 }", 3),
    ],
)
def test_intels_scale_and_bias(settings: str, blobs: int) -> None:
    model = make_net(f'type: "BatchNorm" batch_norm_param {{ {settings} }}', X.shape)
    values = (2 * MEAN, 2 * VARIANCE, np.array([2]), FACTOR, BIAS)[:blobs]
    expected = normalize(X, MEAN, VARIANCE) * (FACTOR[:, None, None] if blobs > 3 else 1)
    result = run(model, values, X).blobs["t0"]
    np.testing.assert_allclose(result, expected + (BIAS[:, None, None] if blobs > 4 else 0), rtol=1e-4, atol=1e-4)


def test_layers_for_phases_of_forks_are_excluded() -> None:
    text = (
        'layer { name: "b0" type: "Parameter" top: "b0" parameter_param { shape { dim: 1 } } include { phase: %s } }\n'
    )
    assert [len(Net(text % phase, "TEST").graph.layers) for phase in ("RUN", "FORWARDA", "TEST")] == [0, 0, 1]


@pytest.mark.parametrize("name", ["", 'param { name: "w" lr_mult: 2 }'])
def test_freeze_learning_excludes_a_layer_from_training(name: str) -> None:
    model = make_net(
        f'type: "InnerProduct" {name} inner_product_param {{ num_output: 2 }} freeze_learning: true', (2, 3)
    )
    params = model.graph.layers[-1].params
    assert [p.lr_mult for p in params] == [0, 0]
    assert not any(p.need_backward for p in params)


UNREAD_SETTINGS = [
    ("NdPooling", "pooling_param { kernel_size: 2 }", (1, 2, 4, 4, 4), "kernel_size does not apply"),
    ("NdConvolution", "convolution_param { num_output: 2 stride: 2 }", (1, 2, 4, 4, 4), "stride does not apply"),
    ("Pooling3D", "pooling_param { kernel_size: 2 kernel_depth: 2 round_mode: FLOOR }", (1, 2, 4, 4, 4), "round_mode"),
    ("Pooling3D", "pooling3d_param { kernel_size: 2 kernel_depth: 2 pad_h0: 1 }", (1, 2, 4, 4, 4), "pad_h0 does not"),
    ("NdConvolution", "convolution_param { num_output: 2 axis: 2 }", (1, 2, 4, 4, 4), "axis does not apply"),
    ("Convolution3D", "convolution_param { num_output: 2 group: 2 }", (1, 2, 4, 4, 4), "group does not apply"),
    ("Upsample", "upsample_param { scale_h: 2 scale_w: 2 }", (1, 2, 4, 4), "scale_h does not apply"),
    ("Normalize", "normalize_param { across_spatial: false }", (2, 3), "across_spatial does not apply"),
    ("Normalize", 'norm_param { normalize_type: "L1" }', (2, 3), "normalize_type does not apply"),
]


@pytest.mark.parametrize(("layer_type", "text", "shape", "message"), UNREAD_SETTINGS)
def test_settings_that_a_type_does_not_read_are_refused(
    layer_type: str, text: str, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(CaffejaxError, match=message):
        make_net(f'type: "{layer_type}" {text}', shape)


def test_settings_of_another_fork_are_refused() -> None:
    shapes = [(1, 6, 4, 4), (1, 12, 4, 4), (1, 3)]
    text = "proposal_param { ratio: 1 scale: 1 scale: 2 scale: 3 %s }"
    assert make_net('type: "Proposal" ' + text % "", *shapes)
    with pytest.raises(CaffejaxError, match=r"max_rois is only for synopsys-caffe"):
        make_net('type: "Proposal" ' + text % "max_rois: 9", *shapes)
    with pytest.raises(CaffejaxError, match="top_k does not apply"):
        make_net('type: "AccuracyDecode" accuracy_param { top_k: 2 }', (2, 3), (2,))
    with pytest.raises(CaffejaxError, match="tf of a different fork"):
        make_net(
            'type: "PriorBoxClustered" prior_box_param { width: 2 height: 2 tf: true }', (1, 1, 2, 2), (1, 1, 4, 4)
        )


def test_intels_concat_permutes_and_flattens() -> None:
    a, b = (RNG.normal(size=shape).astype("f") for shape in ((2, 3, 4, 5), (2, 2, 1, 3)))
    model = make_net('type: "Concat" concat_param { axis: 1 per_fla_fuse: true }', a.shape, b.shape)
    expected = np.concatenate([x.transpose(0, 2, 3, 1).reshape(2, -1) for x in (a, b)], axis=1)
    np.testing.assert_array_equal(run(model, (), a, b).blobs["t0"], expected[:, :, None, None])


@pytest.mark.parametrize(
    ("layer_type", "param", "settings", "slope"),
    [
        ("BatchNorm", "batch_norm_param", "use_global_stats: false", 0),
        ("Convolution", "convolution_param", "num_output: 2 kernel_size: 2 negative_slope: 0.5", 0.5),
        ("InnerProduct", "inner_product_param", "num_output: 4 negative_slope: 0.25", 0.25),
        ("InnerProduct", "inner_product_param", "num_output: 4 min_top_axes: 4", 0),
    ],
)
def test_intels_relu_is_applied_to_the_top(layer_type: str, param: str, settings: str, slope: float) -> None:
    x = RNG.normal(size=(3, 2, 4, 4)).astype("f")
    weights = 'weight_filler { type: "gaussian" } bias_filler { type: "gaussian" }' if layer_type != "BatchNorm" else ""
    plain_net, relu_net = (
        make_net(f'type: "{layer_type}" {param} {{ {text} {weights} }}', x.shape)
        for text in (settings.partition("negative")[0], f"relu: true {settings}")
    )
    plain_top, relu_top = (run(model, (), x).blobs["t0"] for model in (plain_net, relu_net))
    assert np.min(plain_top) < 0
    np.testing.assert_allclose(relu_top, np.where(plain_top > 0, plain_top, slope * plain_top), rtol=1e-6)
    with pytest.raises(CaffejaxError, match=r"relu \(of intel\)"):
        make_net(f'type: "{layer_type}" {param} {{ relu: true engine: CAFFE {settings} }}', x.shape)


def test_scale_multiplies_msra_values() -> None:
    plain_filler, scaled_filler = (caffe_pb2.FillerParameter(type="msra", scale=scale) for scale in (1, 3))
    np.testing.assert_allclose(fill(scaled_filler, KEY, (4, 5)), 3 * fill(plain_filler, KEY, (4, 5)), rtol=1e-6)


def test_inner_product_with_noise_in_training() -> None:
    x, filler = RNG.normal(size=(5, 4)).astype("f"), 'weight_filler { type: "uniform" min: -1 max: 1 }'
    param = f'type: "InnerProduct" inner_product_param {{ num_output: 3 enable_noise: true sigma_init: 0.5 {filler} }}'
    weight, bias = RNG.normal(size=(3, 4)).astype("f"), RNG.normal(size=3).astype("f")
    weight_deviation, bias_deviation = RNG.uniform(1, 2, (3, 4)).astype("f"), RNG.uniform(1, 2, 3).astype("f")
    blobs = weight, bias, weight_deviation, bias_deviation
    np.testing.assert_allclose(run(make_net(param, x.shape), blobs, x).blobs["t0"], x @ weight.T + bias, rtol=1e-5)

    model = make_net(param, (5, 4), phase="TRAIN")
    initial_blobs = model.init(KEY).params["layer"]
    assert np.abs(initial_blobs["weight"]).max() <= 1 / 2  # the filler's values over the root of 4 inputs
    np.testing.assert_allclose(
        [initial_blobs["weight_deviation"][0, 0], initial_blobs["bias_deviation"][0]],
        [0.5 / 2, 0.5 / np.sqrt(3)],
        rtol=1e-6,
    )
    inputs = np.concatenate([np.eye(4), np.zeros((1, 4))]).astype("f")  # each weight, and the bias
    noisy_tops = [np.asarray(run(model, blobs, inputs, key=jax.random.key(k)).blobs["t0"]) for k in (1, 2)]
    assert not np.allclose(*noisy_tops)
    bias_noise = (noisy_tops[0][4] - bias) / bias_deviation
    noise = (noisy_tops[0][:4] - noisy_tops[0][4] - weight.T) / weight_deviation.T
    for sample in (noise, bias_noise):
        assert 0.1 < np.abs(sample).max() <= 1.0001
    v = make_variables(model, *blobs)
    grads = jax.grad(lambda p: jnp.sum(model.apply(p, v.state, {"b0": inputs}, key=jax.random.key(1))[0]["t0"]))(
        v.params
    )["layer"]
    np.testing.assert_allclose(grads["weight_deviation"], noise.T, atol=1e-5)
    np.testing.assert_allclose(grads["bias_deviation"], 5 * bias_noise, rtol=1e-4)


def test_scale_filler_multiplies_values() -> None:
    for filler_type in ("constant", "uniform", "gaussian", "xavier", "msra"):
        filler = caffe_pb2.FillerParameter(type=filler_type, value=3, min=-2, max=4, mean=1, std=2)
        values, scaled_values = (
            np.asarray(fill(f, KEY, (40, 50))) for f in (filler, scale_filler(filler, 0.25, (40, 50)))
        )
        if filler_type == "msra":  # drawn otherwise
            values, scaled_values = (np.std(x) for x in (values, scaled_values))
        np.testing.assert_allclose(scaled_values, values / 4, rtol=0.05 if filler_type == "msra" else 1e-5)
    with pytest.raises(CaffejaxError, match="cannot be scaled"):
        scale_filler(caffe_pb2.FillerParameter(type="bilinear"), 2, (1, 1, 2, 2))


def test_synopsys_bn_settings() -> None:
    """`icnet: true` selects PSPNet's layer; settings of the other layer are refused."""
    assert len(make_net('type: "BN" bn_param { icnet: true momentum: 0.5 }', X.shape).init(KEY).state["layer"]) == 2
    for settings, message in (("icnet: true scale_filler { }", "scale_filler"), ("bn_mode: INFERENCE eps: 1", "eps")):
        with pytest.raises(CaffejaxError, match=f"{message} does not apply"):
            make_net(f'type: "BN" bn_param {{ {settings} }}', X.shape)
    for frozen, variance in (("true", 1), ("false", 0)):
        state_blobs = make_net(f'type: "BN" bn_param {{ frozen: {frozen} }}', X.shape).init(KEY).state["layer"]
        assert float(state_blobs["variance"].ravel()[0]) == variance
