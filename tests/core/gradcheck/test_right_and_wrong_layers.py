"""Gradient checks of a table of layers, right ones and subtly wrong ones: each gets its verdict, and no other."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import Net, ParamSpec, check_gradients, declare
from caffejax.core.gradcheck import Report
from caffejax.core.layers import ChannelAffine, register_temporarily
from caffejax.core.layers.types import Indices
from caffejax.core.ops.window import Window

NORMAL = np.random.default_rng(0).standard_normal((4, 6, 5, 5))
WIDE = 2 * np.random.default_rng(1).standard_normal((4, 6, 5, 5))
LARGE = np.random.default_rng(2).standard_normal((8, 32, 28, 28))


def check(
    forward: Any,
    *bottoms: Any,
    rule: Any = None,
    params: Any = None,
    traits: dict[str, Any] | None = None,
    seed: int = 0,
    **gradient: Any,
) -> Report:
    """Check a registered type with this forward function, rule and traits."""
    table = declare("Table", bottoms=len(bottoms), params=params, backward=rule, **gradient, **(traits or {}))(forward)
    with register_temporarily(table):
        return check_gradients("Table", bottoms=bottoms, seed=seed)


def with_gradient(function: Callable[..., Any], gradient: Callable[..., Any]) -> Callable[..., Any]:
    """Return a forward function of one bottom with this gradient(x, dy), as users write it with jax.custom_vjp."""
    wrapped = jax.custom_vjp(function)
    wrapped.defvjp(lambda x: (function(x), x), lambda x, dy: (gradient(x, dy),))
    return lambda x: wrapped(x)


def cube(x: Any) -> Any:
    return x**3


def right(x: Any, dy: Any) -> Any:
    return 3 * x**2 * dy


WRONG_SLOPES: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
    "below 0": (lambda x, dy: jnp.where(x < 0, 0.9, 1) * right(x, dy), NORMAL),
    "below -3": (lambda x, dy: jnp.where(x < -3, 0.5, 1) * right(x, dy), NORMAL),
    "below -3, few of many": (lambda x, dy: jnp.where(x < -3, 0.5, 1) * right(x, dy), LARGE),
    "by the number of rows": (lambda x, dy: right(x, dy) / x.shape[0], NORMAL),
    "one channel": (lambda x, dy: right(x, dy).at[:, -1].multiply(1.1), NORMAL),
    "one channel of the second row": (lambda x, dy: right(x, dy).at[1, 2].multiply(1.1), NORMAL),
    "one element": (lambda x, dy: right(x, dy).at[-1, -1, -1, -1].multiply(1.5), NORMAL),
    "one element of many": (lambda x, dy: right(x, dy).at[-1, -1, -1, -1].multiply(1.5), LARGE),
    "by 1e-4": (lambda x, dy: 1.0001 * right(x, dy), NORMAL),
    "above 6": (lambda x, dy: jnp.where(x > 6, 0.5, 1) * right(x, dy), WIDE),
    "nothing": (lambda x, dy: jnp.zeros_like(x), NORMAL),
    "NaN": (lambda x, dy: right(x, dy).at[0, 0].set(jnp.nan), NORMAL),
    "not masked by the diff": (lambda x, dy: 3 * x**2, NORMAL),
}


@pytest.mark.parametrize("name", WRONG_SLOPES)
def test_a_wrong_slope_without_a_rule_is_reported(name: str) -> None:
    gradient, x = WRONG_SLOPES[name]
    for seed in (0, 1) if "below -3" in name else (0,):
        report = check(with_gradient(cube, gradient), x, seed=seed)
        assert [row.verdict for row in report.rows] == ["autodiff differs from finite differences"], report


@pytest.mark.parametrize("name", [name for name in WRONG_SLOPES if "above 6" not in name])
def test_a_wrong_rule_is_reported(name: str) -> None:
    gradient, x = WRONG_SLOPES[name]
    x = np.where(np.arange(x.size).reshape(x.shape) == 9, -3.5, x)
    report = check(lambda x: cube(x), x, rule=lambda x, *, y, dy: gradient(x, dy))
    assert "rule is wrong" in report.rows[0].verdict


def integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).integers(-2, 3, shape).astype(float)


RIGHT: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "kinks": (lambda x: jnp.maximum(x, 0) + jnp.abs(x - 0.3), (NORMAL,)),
    "kinks of many": (lambda x: jnp.sum(jnp.maximum(x, 0)), (LARGE,)),
    "tiny": (lambda x: 1e-12 * x**3, (NORMAL,)),
    "a large constant": (lambda x: 1e6 + 1e-6 * x**2, (NORMAL,)),
    "floor": (lambda x: jnp.floor(x) + x, (NORMAL,)),
    "floor of integers": (lambda x: jnp.floor(x), (integers(4, 6),)),
    "sum of cubes": (lambda x: jnp.sum(x**3), (LARGE,)),
    "ties": (lambda x: jnp.max(jnp.stack([x, x]), 0), (NORMAL,)),
    "sqrt": (lambda x: jnp.sqrt(x), (np.abs(NORMAL) + 0.01,)),
    "log": (lambda x: jnp.log(x), (np.abs(NORMAL) + 0.01,)),
    "exp(20x)": (lambda x: jnp.exp(20 * x), (NORMAL,)),
    "saturated": (lambda x: jax.nn.sigmoid(40 * x), (NORMAL,)),
    "sort": (lambda x: jnp.sort(x, axis=1), (NORMAL,)),
    "max(a, a)": (lambda a, b: jnp.maximum(a, b), (NORMAL, NORMAL)),
    "ReLU of zeros": (lambda x: jax.nn.relu(x), (np.zeros((4, 5)),)),
    "ReLU of integers": (lambda x: jax.nn.relu(x), (integers(4, 6),)),
    "arcsin, which is NaN at larger numbers": (lambda x: jnp.arcsin(x), (np.tanh(NORMAL),)),
    "softmax": (lambda x: jax.nn.softmax(x, axis=1), (NORMAL,)),
    "round": (lambda x: jnp.round(x), (NORMAL,)),
    "a norm": (lambda x: jnp.sqrt(jnp.sum(x**2, axis=1) + 1e-9), (NORMAL,)),
    "labels as an ordinary bottom": (
        lambda x, labels: jnp.take_along_axis(x, labels.astype(int)[:, None], 1),
        (NORMAL[..., 0, 0], np.arange(4.0)),
    ),
    "one element": (lambda x: x**2, (np.ones(1),)),
    "no elements": (lambda x: x**2, (np.ones((0, 3)),)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_layer_without_a_rule_is_ok(name: str) -> None:
    forward, bottoms = RIGHT[name]
    report = check(forward, *bottoms)
    assert report.ok, report


# layers on the host


class Cube:
    """x**3, with Caffe's interface."""

    def setup(self, bottom: Any, top: Any) -> None:
        self.calls = 0

    def reshape(self, bottom: Any, top: Any) -> None:
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom: Any, top: Any) -> None:
        top[0].data[...] = bottom[0].data ** 3

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        bottom[0].diff[...] = self.differentiate(bottom[0].data, top[0].diff)

    def differentiate(self, x: Any, dy: Any) -> Any:
        return 3 * x**2 * dy


class Negative(Cube):
    def differentiate(self, x: Any, dy: Any) -> Any:
        return -super().differentiate(x, dy)


class WrongBelowMinusThree(Cube):
    def differentiate(self, x: Any, dy: Any) -> Any:
        return np.where(x < -3, 0.5, 1) * super().differentiate(x, dy)


class WrongChannel(Cube):
    def differentiate(self, x: Any, dy: Any) -> Any:
        diff = super().differentiate(x, dy)
        diff[:, 1] *= 1.1
        return diff


class WrongElement(Cube):
    def differentiate(self, x: Any, dy: Any) -> Any:
        diff = super().differentiate(x, dy)
        diff.flat[np.argmax(np.abs(diff))] *= 1.5
        return diff


class WrongRow(Cube):
    def differentiate(self, x: Any, dy: Any) -> Any:
        diff = super().differentiate(x, dy)
        diff[1:] = diff[:1]
        return diff


class OnePercent(Cube):
    def differentiate(self, x: Any, dy: Any) -> Any:
        return 1.01 * super().differentiate(x, dy)


class MutatesDiff(Cube):
    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        top[0].diff[...] *= 2
        super().backward(top, propagate_down, bottom)


class Stale(Cube):
    """Its backward uses the data of the first forward pass."""

    def forward(self, bottom: Any, top: Any) -> None:
        super().forward(bottom, top)
        if self.calls == 0:
            self.first = bottom[0].data.copy()
        self.calls += 1

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        bottom[0].diff[...] = self.differentiate(self.first, top[0].diff)


class RandomForward(Cube):
    def forward(self, bottom: Any, top: Any) -> None:
        top[0].data[...] = bottom[0].data * np.random.default_rng(self.calls).random(bottom[0].data.shape)
        self.calls += 1


class MutatesInput(Cube):
    def forward(self, bottom: Any, top: Any) -> None:
        bottom[0].data[...] *= 2
        super().forward(bottom, top)


class Nothing(Cube):
    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        pass


class Refuses(Cube):
    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        raise NotImplementedError("no backward")


class Stops(Nothing):
    stops_gradient = True


class LabelLoss(Cube):
    """A loss of the numbers that labels choose, which are an ordinary bottom."""

    def reshape(self, bottom: Any, top: Any) -> None:
        top[0].reshape(1)

    def forward(self, bottom: Any, top: Any) -> None:
        self.chosen = np.arange(4), bottom[1].data.astype(int)
        top[0].data[...] = (bottom[0].data[self.chosen] ** 2).sum()

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        bottom[0].diff[self.chosen] = 2 * bottom[0].data[self.chosen] * top[0].diff[0]


class AccumulatesDiffs(Cube):
    """Its backward adds to the diffs of earlier passes, in a buffer of its own."""

    total = 0.0

    def differentiate(self, x: Any, dy: Any) -> Any:
        self.total = self.total + super().differentiate(x, dy)
        return self.total


class WrongSecondBottom(Cube):
    def forward(self, bottom: Any, top: Any) -> None:
        top[0].data[...] = bottom[0].data * bottom[1].data

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        bottom[0].diff[...] = bottom[1].data * top[0].diff
        bottom[1].diff[...] = bottom[1].data * top[0].diff


class MaskedSquare(Cube):
    def forward(self, bottom: Any, top: Any) -> None:
        top[0].data[...] = bottom[0].data ** 2 * bottom[1].data

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        bottom[0].diff[...] = 7 * bottom[0].data * bottom[1].data * top[0].diff


class Step(Cube):
    """A step function: its gradient is zero."""

    def forward(self, bottom: Any, top: Any) -> None:
        top[0].data[...] = bottom[0].data > 0.1

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        bottom[0].diff[...] = 0


class Probabilities(Cube):
    """A layer that refuses arrays that are not probabilities."""

    def forward(self, bottom: Any, top: Any) -> None:
        assert (bottom[0].data >= 0).all()
        super().forward(bottom, top)


class PositiveStep(Step, Probabilities):
    pass


def traced_stop(x: Any) -> Any:
    return jnp.where(x > 0, x, -x)


traced_stop.stops_gradient = True

WRONG_HOST_LAYERS: dict[Any, str] = {
    Negative: "backward is wrong",
    WrongBelowMinusThree: "backward is wrong",
    WrongChannel: "backward is wrong",
    WrongElement: "backward is wrong",
    WrongRow: "backward is wrong",
    OnePercent: "backward is wrong",
    MutatesDiff: "backward is wrong",
    Stale: "backward is wrong",
    AccumulatesDiffs: "backward is wrong",
    MutatesInput: "backward is wrong",
    Nothing: "backward is wrong",
    RandomForward: "not deterministic",
}


@pytest.mark.parametrize("layer", WRONG_HOST_LAYERS, ids=lambda c: c.__name__)
def test_a_wrong_host_layer_is_reported(layer: Any) -> None:
    x = NORMAL[:, :2].copy()
    x[0, 0, 0, 0] = -3.4
    report = check_gradients(layer, bottoms=[x], samples=4)
    assert not report.ok
    assert report.rows[0].verdict.startswith(WRONG_HOST_LAYERS[layer]), report


@pytest.mark.parametrize(
    ("layer", "bottoms", "verdict"),
    [
        (Cube, [NORMAL], "ok"),
        (Step, [NORMAL], "ok"),
        (LabelLoss, [NORMAL[:, :, 0, 0], np.array([0.0, 5.0, 2.0, 1.0])], "ok"),
        (Stops, [NORMAL], "ok (no gradient, as declared)"),
        (traced_stop, [NORMAL], "ok (no gradient, as declared)"),
        (Probabilities, [np.abs(NORMAL) + 1], "ok"),
        (PositiveStep, [np.abs(NORMAL) + 1], "ok"),
    ],
)
def test_a_right_python_layer_is_ok(layer: Any, bottoms: Any, verdict: str) -> None:
    report = check_gradients(layer, bottoms=bottoms, samples=4)
    assert report.ok, report
    assert report.rows[0].verdict == verdict


def test_the_second_bottom_of_a_host_layer_is_checked() -> None:
    report = check_gradients(WrongSecondBottom, bottoms=[(3, 4), (3, 4)])
    assert [row.ok for row in report.rows] == [True, False]


def test_a_masked_host_layer_is_not_called_checked() -> None:
    report = check_gradients(MaskedSquare, bottoms=[NORMAL, np.zeros_like(NORMAL)], samples=4)
    assert not report.ok


INPUT = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 4 dim: 3 } } }'
IP = """layer { name: "ip" type: "InnerProduct" bottom: "a" top: "y"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
  layer { name: "loss" type: "Reduction" bottom: "y" top: "loss" loss_weight: 1 }"""


@pytest.mark.parametrize(
    ("layer", "verdict"),
    [
        (Negative, "backward is wrong"),
        (Nothing, "backward is wrong"),
        (Refuses, "not checked: the net needs no gradient of it, and backward raises NotImplementedError"),
        (Cube, "ok"),
        (Stops, "ok (no gradient, as declared)"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_host_layer_that_reads_the_inputs_is_checked(layer: Any, verdict: str) -> None:
    python = f"""layer {{ name: "p" type: "Python" bottom: "x" top: "a"
      python_param {{ module: "{__name__}" layer: "{layer.__name__}" }} }}"""
    report = check_gradients(Net(INPUT + python + IP, "TRAIN"), samples=6)
    (row,) = [row for row in report.rows if row.layer == "p"]
    assert row.verdict.startswith(verdict)
    assert report.ok is verdict.startswith("ok")
    assert any("stops_gradient" in note for note in report.notes) is (layer is Nothing)


# labels, masks and weights


def masked_square(x: Any, w: Any) -> Any:
    return x**2 * w[:, None]


@pytest.mark.parametrize("mask", [np.zeros(4), np.array([0.0, 1, 0, 1])])
@pytest.mark.parametrize("factor", [2, 7])
def test_a_mask_that_hides_the_gradient_is_drawn_again(factor: float, mask: np.ndarray) -> None:
    report = check(
        masked_square,
        (4, 3),
        mask,
        rule=lambda x, w, *, y, dy: (factor * dy * x * w[:, None], None),
        indices=Indices(bottoms=(1,)),
    )
    (row,) = report.rows
    assert row.verdict == ("ok" if factor == 2 else "rule is wrong: autodiff and finite differences agree")
    assert not row.zero


@pytest.mark.parametrize(
    ("name", "param", "bottoms"),
    [
        ("SoftmaxWithLoss", "loss_param { ignore_label: -1 }", [(4, 3), -np.ones(4)]),
        ("EuclideanLoss", "", [NORMAL[0, 0], NORMAL[0, 0]]),
        ("ContrastiveLoss", "contrastive_loss_param { margin: 0.01 }", [(4, 3), (4, 3), np.zeros(4)]),
    ],
)
def test_losses_are_not_zero_for_lack_of_labels(name: str, param: str, bottoms: Any) -> None:
    report = check_gradients(name, param, bottoms=bottoms, samples=4)
    assert report.ok, report
    assert not any(row.zero for row in report.rows), report


# ties, NaN, zero variance


@pytest.mark.parametrize("bottoms", ["b c b", "b b", "b b b", "b c c"])
def test_eltwise_max_of_one_blob_is_ok(bottoms: str) -> None:
    blobs = " ".join(f'bottom: "{name}"' for name in bottoms.split())
    text = f"""{INPUT}
      layer {{ name: "b" type: "Power" bottom: "x" top: "b" power_param {{ scale: 2 }} }}
      layer {{ name: "c" type: "Sigmoid" bottom: "x" top: "c" }}
      layer {{ name: "max" type: "Eltwise" {blobs} top: "a" eltwise_param {{ operation: MAX }} }}"""
    report = check_gradients(Net(text + IP, "TRAIN"), layers=["max"])
    assert len(report.rows) == len(bottoms.split())
    assert report.ok, report
    assert not any(row.zero for row in report.rows)


@pytest.mark.parametrize(
    ("forward", "x", "message"),
    [
        (lambda x: jnp.log(x), np.array([1.0, -1.0, 2.0]), "top 0 has NaN, the first at [1]"),
        (lambda x: jnp.log(x), np.array([1.0, 0.0, 2.0]), "top 0 has inf, the first at [1]"),
    ],
)
def test_a_top_that_is_not_finite_is_named(forward: Any, x: np.ndarray, message: str) -> None:
    (row,) = check(forward, x).rows
    assert row.verdict == f"not checked: {message}"
    assert not row.ok


def test_the_empty_windows_of_average_pooling_are_named() -> None:
    param = "pooling_param { pool: AVE kernel_size: 2 stride: 3 }"
    (row,) = check_gradients("Pooling", param, bottoms=[(2, 3, 6, 6)]).rows
    assert "top 0 has NaN" in row.verdict


def test_normalization_of_single_numbers_has_no_gradient() -> None:
    """The gradient of (x - x) / eps is 0, not 0 * inf."""
    report = check_gradients("MVN", bottoms=[(2, 3, 1, 1)])
    assert report.ok, report
    assert report.rows[0].zero


# declarations


def test_a_registered_type_declares_that_it_stops_the_gradient() -> None:
    report = check(lambda x: x**2, NORMAL, stops_gradient=True)
    assert report.ok
    assert [row.verdict for row in report.rows] == ["ok (no gradient, as declared)"]


def test_a_declaration_stops_the_gradient_of_the_net() -> None:
    text = f"""{INPUT} layer {{ name: "ip0" type: "InnerProduct" bottom: "x" top: "b"
        inner_product_param {{ num_output: 3 weight_filler {{ type: "xavier" }} }} }}
      layer {{ name: "p" type: "Python" bottom: "b" top: "a"
        python_param {{ module: "{__name__}" layer: "%s" }} }} {IP}"""
    for layer in (Cube, Stops, traced_stop):
        net = Net(text % layer.__name__, "TRAIN")
        params, state = net.init(jax.random.key(0))
        gradient = jax.grad(lambda p: net.loss(p, state, {"x": NORMAL[:, :3, 0, 0]})[0])(params)  # noqa: B023
        assert bool(gradient["ip0"]["weight"].any()) is (layer is Cube)
        assert gradient["ip"]["weight"].any()


def test_a_batch_of_one_row_is_noted() -> None:
    wrong_by_rows = with_gradient(cube, lambda x, dy: right(x, dy) * x.shape[0])
    report = check(wrong_by_rows, NORMAL[:1])
    assert report.ok
    assert "Give a batch > 1" in str(report)
    assert "Give a batch > 1" not in str(check(wrong_by_rows, NORMAL))


def test_a_layer_of_labels_alone_has_a_line() -> None:
    report = check(lambda labels: 1.0 * labels, np.arange(4), indices=Indices((0,)))
    assert report.ok
    assert [row.verdict for row in report.rows] == ["ok (no gradient: labels and indices)"]


LIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "elementwise": (lambda x: x - jnp.mean(x, -1, keepdims=True), {"elementwise": True}),
    "elementwise: position": (lambda x: x * jnp.arange(x.shape[-1]), {"elementwise": True}),
    "elementwise: the whole": (lambda x: x - jnp.mean(x), {"elementwise": True}),
    "elementwise: the size": (lambda x: x / x.size, {"elementwise": True}),
    "elementwise: the shape": (lambda x: x[:, :1], {"elementwise": True}),
    "row_wise": (lambda x: x - jnp.mean(x, 0), {"row_wise": True}),
    "row_wise: the number": (lambda x: x / x.shape[0], {"row_wise": True}),
    "row_wise: a sum": (lambda x: jnp.sum(x), {"row_wise": lambda: True}),
    "row_bottoms": (lambda x: x, {"row_wise": True, "row_bottoms": (1,)}),
    "counts_rows": (lambda x: jnp.mean(x), {"counts_rows": True}),
    "row_tops": (lambda x: x, {"row_tops": (0,)}),
    "takes_one_image": (lambda x: x, {"takes_one_image": True}),
    "is_relu": (lambda x: jnp.maximum(x, 0.1 * x), {"is_relu": lambda: True}),
    "depends_only_on_shapes": (lambda x: x, {"depends_only_on_shapes": True}),
    "is_identity": (lambda x: x + 1e-3, {"is_identity": lambda: True}),
    "data_movement": (lambda x: 2 * x, {"data_movement": "some"}),
    "data_movement: all": (lambda x: x[:, 1:], {"data_movement": "all"}),
    "dtype_policy": (lambda x: 1000 * (x + 100) - 100000, {"dtype_policy": "bottoms"}),
    "accepts_integers": (lambda x: x + jnp.asarray(0.5, x.dtype), {"accepts_integers": True}),
    "spatial_map": (lambda x: x[:, :, 1:], {"spatial_map": "same"}),
    "spatial_map: window": (
        lambda x: x + jnp.roll(x, 1, -1),
        {"spatial_map": "windows", "window": lambda x: Window.symmetric((1, 1), (1, 1), (0, 0))},
    ),
    "spatial_map: the window's size": (
        lambda x: x,
        {"spatial_map": "windows", "window": lambda x: Window.symmetric((4, 4), (1, 1), (0, 0))},
    ),
    "receptive_window": (
        lambda x: x - jnp.mean(x, (2, 3), keepdims=True),
        {"receptive_window": lambda x: Window.symmetric((3, 3), (1, 1), (1, 1))},
    ),
    "channel_affine": (
        lambda x: 2 * x + 1,
        {
            "channel_affine": ChannelAffine(
                lambda shapes, axis, channels: axis == 1, lambda blobs: (2 * np.ones(6), np.zeros(6))
            )
        },
    ),
    "fold_scale_bias": (
        lambda x: 2 * x,
        {"fold_scale_bias": lambda blobs, factor, bias, *, ctx: (ctx.layer, blobs)},
    ),
    "weight_axes": (lambda blobs, x: x * blobs[0][0], {"weight_axes": 2}),
    "pads_rows": (lambda x: x, {"pads_rows": True}),
    "convert_stored": (
        lambda blobs, x: x * blobs[0][0],
        {"convert_stored": lambda blobs: ([-blob for blob in blobs], None)},
    ),
    "top_is_param": (lambda blobs, x: x * blobs[0][0], {"top_is_param": True}),
    "marks_detections": (lambda x: x[..., :4], {"marks_detections": True}),
    "takes_logits": (lambda x: jnp.exp(x), {"takes_logits": True}),
    "label_axis": (lambda x: x[:, :1], {"label_axis": lambda: 1}),
}
LIES_WITH_PARAMS = ("weight_axes", "convert_stored", "top_is_param")


@pytest.mark.parametrize("name", LIES)
def test_an_untrue_trait_is_reported(name: str) -> None:
    forward, traits = LIES[name]
    params = (lambda x: [ParamSpec((1,))]) if name in LIES_WITH_PARAMS else None
    report = check(forward, NORMAL, traits=traits, params=params)
    assert not report.ok
    (row,) = report.failures
    assert row.argument == f"trait {name.partition(':')[0]}"
    assert row.verdict.startswith("trait is untrue")
    assert row.argument in str(row)
