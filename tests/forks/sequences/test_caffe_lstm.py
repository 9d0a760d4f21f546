"""Tests of Lstm, LstmSimple and ContinuationIndicator."""

import jax
import numpy as np
import pytest

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from layer_nets import net_text, run_layer
from layer_suite import BATCH, fork_properties, layer_case, recorded

GAUSSIAN_FILLER = 'weight_filler { type: "gaussian" std: 1 }'

test_recorded = recorded("Lstm", family="sequences")
test_properties = fork_properties(
    layer_case("LstmSimple", 'lstm_simple_param { num_output: 3 weight_filler { type: "gaussian" } }', (8, 4)),
    layer_case(
        "Lstm",
        'recurrent_param { num_output: 3 weight_filler { type: "gaussian" } }',
        (4, BATCH, 5),
        (4, BATCH),
        name="recurrent",
    ),
    layer_case("Lstm", f"lstm_param {{ num_output: 3 batch_size: 2 {GAUSSIAN_FILLER} }}", (8, 4)),
    layer_case("Lstm", f"lstm_param {{ num_output: 3 batch_size: 2 {GAUSSIAN_FILLER} }}", (8, 4), (4, 2), name="clip"),
    layer_case("Lstm", f"lstm_param {{ num_output: 3 {GAUSSIAN_FILLER} }}", (4, 2, 4), name="ctpn"),
    layer_case("Lstm", f"lstm_param {{ num_output: 3 batch_size: 2 {GAUSSIAN_FILLER} }}", (8,), name="one_axis"),
    layer_case("ContinuationIndicator", "continuation_indicator_param { time_step: 3 batch_size: 2 }"),
)


Shape = tuple[int, ...]


def test_mycaffe_lstm_equals_bvlc_lstm() -> None:
    x, cont = np.random.default_rng(0).normal(size=(4, 2, 5)), np.array([[0, 0], [1, 1], [1, 0], [1, 1]])
    text = 'recurrent_param { num_output: 3 weight_filler { type: "gaussian" } }'
    np.testing.assert_array_equal(run_layer("Lstm", text, x, cont)[0], run_layer("LSTM", text, x, cont)[0])


@pytest.mark.parametrize("shape", [(8,), (8, 1), (8, 4), (8, 2, 2), (8, 2, 1, 3), (8, 1, 2, 2, 1)])
def test_axes_after_the_first_are_one_vector(shape: Shape) -> None:
    text = f"lstm_param {{ num_output: 3 batch_size: 2 {GAUSSIAN_FILLER} }}"
    x = np.random.default_rng(0).normal(size=shape)
    net = Net(net_text("Lstm", text, [shape]))
    params, _ = net.init(jax.random.key(0))
    weight, recurrent_weight, bias = (np.asarray(a, np.float64) for a in params["layer"].values())
    features = x.reshape(4, 2, -1)
    h = c = np.zeros((2, 3))
    expected = []
    for t in range(4):  # caffe-lstm's CPU code computes all gates from the hidden state of the first sequence
        gates = features[t] @ weight.T + bias + (h[:1] @ recurrent_weight.T if t else 0)
        i, f, o = (1 / (1 + np.exp(-gates[:, 3 * k : 3 * k + 3])) for k in range(3))
        c = i * np.tanh(gates[:, 9:]) + (f * c if t else 0)
        h = o * np.tanh(c)
        expected.append(h)
    top = net.apply(params, {}, {"b0": x.astype(np.float32)})[0]["t0"]
    np.testing.assert_allclose(top, np.concatenate(expected), atol=2e-6)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("LstmSimple", "lstm_simple_param { num_output: 2 batch_size: 3 }", [(8, 4)], "batch_size 3 rows"),
        (
            "LstmSimple",
            "lstm_simple_param { num_output: 2 enable_clockwork_forgetgate_bias: true }",
            [(8, 4)],
            "enable_clockwork_forgetgate_bias",
        ),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Shape], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))


def test_continuation_indicator_is_0_in_the_first_row() -> None:
    text = net_text("ContinuationIndicator", "continuation_indicator_param { time_step: 3 batch_size: 2 }", [])
    np.testing.assert_array_equal(Net(text).apply({}, {}, {})[0]["t0"], [[0, 0], [1, 1], [1, 1]])


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("ContinuationIndicator", "continuation_indicator_param { time_step: 3 }", [], "must be positive"),
        ("Lstm", "lstm_param { num_output: 2 batch_size: 3 }", [(8, 4)], "batch_size 3 rows"),
        ("Lstm", "lstm_param { num_output: 2 }", [()], "batch_size 1 rows"),
        ("Lstm", "lstm_param { num_output: 2 batch_size: 2 }", [(8, 4), (2, 4)], r"shape \(4, 2\)"),
    ],
)
def test_further_invalid_settings_are_refused(
    layer_type: str, text: str, shapes: list[tuple[int, ...]], match: str
) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))
