"""Nets whose weights stay the same are frozen automatically: features, scores and losses are unchanged."""

from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from caffejax import Net, Variables
from caffejax.core.data.loader import Loader
from caffejax.core.graph.inference_graph import output_and_loss_names
from caffejax.core.parallel.mesh import one_device_mesh
from caffejax.core.solver import Evaluator
from caffejax.core.solver.intermediates import extract_features
from caffejax.cpu.frozen import frozen_pass_cache
from caffejax.cpu.frozen.frozen_pass_cache import FrozenPasses, freeze_passes

DIGITS = Path(__file__).parents[3] / "configs" / "digits" / "lenet_train_test.prototxt"
INPUTS = """layer { name: "in" type: "Input" top: "x" top: "label"
  input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }
"""
IP = """layer { name: "%s" type: "InnerProduct" bottom: "x" top: "%s" %s
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
"""
LOSS = """layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" loss_weight: 0.5 }
"""
NETS = {
    "two losses, one of them an inner blob": INPUTS
    + IP % ("ip", "ip", "loss_weight: 0.25")
    + LOSS
    + 'layer { name: "acc" type: "Accuracy" bottom: "ip" bottom: "label" top: "acc" include { phase: TEST } }',
    "a loss that another layer reads": INPUTS
    + IP % ("ip", "ip", "")
    + LOSS
    + 'layer { name: "more" type: "Power" bottom: "loss" top: "more" power_param { scale: 3 } }',
    "no loss": INPUTS + IP % ("ip", "ip", ""),
}
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}


def draw_batch(net: Net, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    batch = {name: random.normal(size=net.graph.blobs[name].shape).astype(np.float32) for name in net.input_names}
    return {**batch, "label": random.integers(0, 5, 4)}


def freeze_net(net: Net, variables: Variables, blobs: list[str]) -> FrozenPasses | None:
    return freeze_passes(net.graph, net.config, variables, blobs)


@pytest.mark.parametrize("case", NETS)
def test_losses_of_frozen_passes_equal_the_nets(case: str) -> None:
    net = Net(NETS[case], "TEST")
    variables = net.init(jax.random.key(0))
    passes = freeze_passes(net.graph, net.config, variables, output_and_loss_names(net.graph))
    assert passes is not None
    for seed in range(2):
        batch = draw_batch(net, seed)
        blobs = passes(batch, None)
        loss, outputs = net.loss(*variables, batch, required=False)
        assert float(passes.loss(blobs)) == pytest.approx(float(loss), rel=1e-5, abs=1e-7)
        assert (float(loss) != 0) == (case != "no loss")
        for name, array in outputs.blobs.items():
            np.testing.assert_allclose(blobs[name], array, err_msg=name, **TOLERANCE)


def test_scores_are_equal_with_and_without_freezing() -> None:
    net = Net(DIGITS, "TEST")  # what its data layer reads is still to be scaled
    variables = net.init(jax.random.key(0))
    scores = []
    for freeze in (True, False):
        evaluator = Evaluator(net, one_device_mesh(jax.devices()[0]), freeze=freeze)
        assert evaluator._compile_inference(variables) is not None
        scores.append(evaluator(variables, 3, jax.random.key(1)))
        evaluator.loader.close()
    frozen_scores, plain_scores = scores
    assert frozen_scores.loss == pytest.approx(plain_scores.loss, rel=1e-5)
    assert frozen_scores.outputs.keys() == plain_scores.outputs.keys()
    for name, array in plain_scores.outputs.items():
        np.testing.assert_allclose(frozen_scores.outputs[name], array, err_msg=name, **TOLERANCE)


@pytest.mark.parametrize("blobs", [["pool1"], ["ip2", "conv1", "label"], ["ip1", "mnist"]])
def test_features_are_equal_with_and_without_freezing(blobs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(DIGITS, "TEST")
    blobs = [name if name in net.graph.blobs else net.input_names[0] for name in blobs]
    variables = net.init(jax.random.key(0))
    assert freeze_passes(net.graph, net.config, variables, blobs) is not None
    batches = []
    for freeze in (True, False):
        if not freeze:
            monkeypatch.setitem(extract_features.__globals__, "freeze_passes", lambda *_: None)
        loader = Loader(net.graph)
        batches.append(list(extract_features(net, variables, blobs, islice(loader, 2))))
        loader.close()
    for frozen_batch, batch in zip(*batches, strict=True):
        assert set(frozen_batch) == set(batch) == set(blobs)
        for name, array in batch.items():
            np.testing.assert_allclose(frozen_batch[name], array, err_msg=name, rtol=1e-5, atol=1e-5)


def test_nets_are_frozen_only_where_results_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    prototxt = INPUTS + 'layer { name: "r" type: "ReLU" bottom: "x" top: "x" }' + IP % ("ip", "ip", "")
    make = partial(Net, prototxt, "TEST")
    variables = make().init(jax.random.key(0))
    assert freeze_net(make(), variables, ["ip"]) is not None
    overwritten_input = freeze_net(make(), variables, ["x"])  # the input, on which a layer works in place
    inputs = {"x": np.asarray([[-1, 2, -3]] * 4, np.float32), "label": np.zeros(4, np.float32)}
    assert overwritten_input is not None
    np.testing.assert_array_equal(overwritten_input(inputs, None)["x"], np.maximum(inputs["x"], 0))
    assert freeze_net(make(), variables, []) is None
    assert freeze_net(make(kernels="reference"), variables, ["ip"]) is None
    assert freeze_net(make(precision="bfloat16"), variables, ["ip"]) is None
    assert freeze_net(Net(prototxt, "TRAIN"), variables, ["ip"]) is None
    monkeypatch.setattr(frozen_pass_cache, "get_free_memory", lambda: 100)
    assert freeze_net(make(), variables, ["ip"]) is None


def test_an_unnamed_loss_cannot_be_computed_from_blobs() -> None:
    prototxt = INPUTS + IP % ("ip", "ip", "") + LOSS.replace('top: "loss" loss_weight: 0.5', "")
    assert output_and_loss_names(Net(prototxt, "TEST").graph) == ()
