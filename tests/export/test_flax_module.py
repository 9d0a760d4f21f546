"""Nets as flax modules: equal outputs, gradients and statistics, and compatibility with flax's tools."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx

from caffejax import GraphError, LayerError, Net, load_weights
from caffejax.core.data.loader import Loader
from caffejax.export.flax_module import CaffeModule, RecurrentState, to_linen, variables_of

GOLDEN = Path(__file__).parents[1] / "golden"
LENET = Path(__file__).parents[2] / "configs" / "digits" / "lenet_train_test.prototxt"

RANDOM = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 64 dim: 5 } } }
layer { name: "a/ip" type: "InnerProduct" bottom: "x" top: "ip"
  inner_product_param { num_output: 7 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "ip" top: "bn" }
layer { name: "drop" type: "Dropout" bottom: "bn" top: "drop" }
layer { name: "loss" type: "Reduction" bottom: "drop" top: "loss" loss_weight: 1 reduction_param { operation: SUMSQ } }
"""
LSTM = """
layer { name: "in" type: "Input" top: "x" top: "cont"
  input_param { shape { dim: 3 dim: 2 dim: 4 } shape { dim: 3 dim: 2 } } }
layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "h"
  recurrent_param { num_output: 5 weight_filler { type: "gaussian" std: 0.5 } } }
"""


def assert_equal(actual: Any, expected: Any) -> None:
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-7), actual, expected)


def normal(*shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(7), shape)


@nnx.jit
def loss_and_grads(model: CaffeModule, batch: Any) -> Any:
    return nnx.value_and_grad(lambda m: m.loss(batch), has_aux=True)(model)


@pytest.mark.parametrize("path", sorted((GOLDEN / "nets").glob("*.npz")), ids=lambda p: p.stem)
def test_losses_blobs_and_gradients_equal_the_nets(path: Path) -> None:
    recorded_arrays = dict(np.load(path))
    net = Net(path.with_suffix(".prototxt"), "TRAIN")
    inputs = {k.removeprefix("in/"): v for k, v in recorded_arrays.items() if k.startswith("in/")}
    params, state = variables = net.init(jax.random.key(0))
    (total, outputs), grads = jax.jit(jax.value_and_grad(net.loss, has_aux=True))(params, state, inputs)
    model = CaffeModule(net, variables)
    (actual_total, actual_blobs), actual_grads = loss_and_grads(model, inputs)
    assert_equal((actual_total, actual_blobs), (total, outputs.blobs))
    assert_equal(jax.tree.leaves(actual_grads), jax.tree.leaves(grads))
    assert_equal(variables_of(model), variables)


@pytest.mark.parametrize("case", ["sgd_batchnorm_test", "sgd_shared_params", "adam_two_losses_weights_field"])
def test_training_passes_equal_the_nets(case: str) -> None:
    """Losses, gradients and running statistics of several passes are equal, starting from Caffe's own weights."""
    folder = GOLDEN / "solver" / case
    net = Net(folder / "net.prototxt", "TRAIN")
    params, state = variables = load_weights(folder / "init.caffemodel", net.graph, net.init(jax.random.key(0)))
    model, loader = CaffeModule(net, variables), Loader(net.graph)
    step = jax.jit(jax.value_and_grad(net.loss, has_aux=True))
    for _ in range(3):
        batch = next(loader)
        (total, outputs), grads = step(params, state, batch)
        state = outputs.state
        (actual_total, _), actual_grads = loss_and_grads(model, batch)
        assert_equal(actual_total, total)
        assert_equal(jax.tree.leaves(actual_grads), jax.tree.leaves(grads))
        assert_equal(variables_of(model).state, state)
    loader.close()


def test_a_shared_blob_is_one_param() -> None:
    net = Net(GOLDEN / "solver" / "sgd_shared_params" / "net.prototxt", "TRAIN")
    model = CaffeModule(net, rngs=nnx.Rngs(0))
    assert len(jax.tree.leaves(nnx.state(model, nnx.Param))) == len(net.graph.unique_params) < len(net.graph.params)


def test_variables_are_named_by_layer_and_blob() -> None:
    state = nnx.state(CaffeModule(Net(RANDOM, "TRAIN"), rngs=nnx.Rngs(0)))
    assert state["weights"]["a/ip"]["weight"].shape == (7, 5)
    assert [type(statistic) for statistic in state["state"]["bn"].values()] == [nnx.BatchStat] * 3


def test_random_layers_use_new_keys_only_in_train_mode() -> None:
    net = Net(RANDOM, "TRAIN")
    model = CaffeModule(net, net.init(jax.random.key(0)), rngs=nnx.Rngs(dropout=1))
    batch = {"x": normal(64, 5)}
    variables_before, key = variables_of(model), jax.random.fold_in(model.stream.key[...], 0)
    first, second = (model(batch, blobs=["drop"])["drop"] for _ in range(2))
    assert_equal(first, net.apply(*variables_before, batch, key=key, blobs=["drop"])[0]["drop"])
    assert (first != second).any()

    model.eval()
    third, fourth = (model(batch, blobs=["drop"])["drop"] for _ in range(2))
    assert_equal(third, fourth)
    assert_equal(third, Net(RANDOM, "TEST").apply(*variables_of(model), batch, blobs=["drop"])[0]["drop"])
    model.train()
    model_view = nnx.view(model, deterministic=True)
    assert_equal(model_view(batch), Net(RANDOM, "TEST").apply(*variables_of(model), batch)[0])


def test_random_layers_repeat_their_samples_in_eval_mode() -> None:
    net = Net(
        """layer { name: "x" type: "DummyData" top: "x"
        dummy_data_param { shape { dim: 4 } data_filler { type: "gaussian" } } }"""
    )
    model = CaffeModule(net, rngs=nnx.Rngs(0))
    assert_equal(model({}), model({}))
    model.train()
    assert (model({})["x"] != model({})["x"]).any()


def test_missing_rngs_and_variables_are_named() -> None:
    net = Net(RANDOM, "TRAIN")
    with pytest.raises(ValueError, match="rngs"):
        CaffeModule(net)
    with pytest.raises(LayerError, match=r"layer 'drop' \(Dropout\): is random in this phase and needs a random key"):
        CaffeModule(net, net.init(jax.random.key(0)))({"x": normal(64, 5)})


def test_recurrent_layers_carry_their_state() -> None:
    net = Net(LSTM, "TEST")
    params, state = variables = net.init(jax.random.key(0))
    model = CaffeModule(net, variables)
    assert jax.tree.leaves(nnx.state(model, RecurrentState))
    batch = {"x": normal(3, 2, 4), "cont": jnp.ones((3, 2))}
    for _ in range(2):
        outputs, state = net.apply(params, state, batch)
        assert_equal(model(batch), outputs)
    assert_equal(variables_of(model).state, state)


def adam_steps(model: CaffeModule, loader: Loader, n: int) -> list[float]:
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)

    @nnx.jit
    def step(model: CaffeModule, optimizer: Any, batch: Any) -> jax.Array:
        (loss, _), grads = nnx.value_and_grad(lambda m: m.loss(batch), has_aux=True)(model)
        optimizer.update(model, grads)
        return loss

    return [float(step(model, optimizer, next(loader))) for _ in range(n)]


def test_lenet_learns_digits_and_is_checkpointed(tmp_path: Path) -> None:
    train, test = Net(LENET, "TRAIN"), Net(LENET, "TEST")
    model = CaffeModule(train, rngs=nnx.Rngs(0))
    loader, test_loader = Loader(train.graph), Loader(test.graph)
    losses = adam_steps(model, loader, 40)
    assert np.mean(losses[-5:]) < 0.4 * losses[0]
    scores, _ = test.forward(*variables_of(model), next(test_loader))
    assert scores["accuracy"] > 0.85

    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "model", nnx.state(model))
    with ocp.StandardCheckpointer() as checkpointer:
        fresh_model = CaffeModule(train, rngs=nnx.Rngs(1))
        graph, abstract = nnx.split(nnx.eval_shape(lambda: CaffeModule(train, rngs=nnx.Rngs(1))))
        restored = nnx.merge(graph, checkpointer.restore(tmp_path / "model", abstract))
        nnx.update(fresh_model, checkpointer.restore(tmp_path / "model", nnx.state(fresh_model)))
    assert_equal(variables_of(restored), variables_of(model))
    assert_equal(variables_of(fresh_model), variables_of(model))
    batch = next(loader)
    assert_equal(restored(batch), model(batch))
    for f in (loader, test_loader):
        f.close()


def test_a_linen_module_has_the_nets_loss_and_state() -> None:
    net = Net(RANDOM, "TRAIN")
    params, state = variables = net.init(jax.random.key(0))
    batch = {"x": normal(64, 5)}
    model = to_linen(net, variables)
    linen_variables = model.init({"params": jax.random.key(1), "dropout": jax.random.key(2)}, batch)
    assert set(linen_variables) == {"params", "batch_stats"}
    assert_equal(linen_variables["params"]["weights"]["a/ip"]["weight"], params["a/ip"]["weight"])

    @jax.jit
    def loss(params: Any) -> Any:
        (total, _), new_state = model.apply(
            {**linen_variables, "params": params},
            batch,
            rngs={"dropout": jax.random.key(3)},
            mutable=["batch_stats"],
            nnx_method="loss",
        )
        return total, new_state

    (_, new_state), grads = jax.value_and_grad(loss, has_aux=True)(linen_variables["params"])
    _, expected = net.apply(params, state, batch, key=jax.random.key(0))
    assert_equal(new_state["batch_stats"]["state"]["bn"], dict(expected["bn"]))
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(grads))
    assert_equal(jax.tree.map(jnp.shape, grads), jax.tree.map(jnp.shape, linen_variables["params"]))


def test_linen_gives_the_nets_outputs_and_gradients() -> None:
    folder = GOLDEN / "solver" / "sgd_shared_params"
    net = Net(folder / "net.prototxt", "TRAIN")
    params, state = variables = load_weights(folder / "init.caffemodel", net.graph, net.init(jax.random.key(0)))
    loader = Loader(net.graph)
    batch = next(loader)
    loader.close()
    model = to_linen(net, variables)
    linen_variables = model.init(jax.random.key(0), batch)
    assert_equal(model.apply(linen_variables, batch), net.apply(params, state, batch)[0])
    grads = jax.grad(lambda v: model.apply(v, batch, nnx_method="loss")[0])(linen_variables)
    assert_equal(jax.tree.leaves(grads), jax.tree.leaves(jax.grad(net.loss, has_aux=True)(params, state, batch)[0]))


def test_no_other_package_imports_flax_interop() -> None:
    code = "import sys, caffejax.core.solver, caffejax.cli.train; sys.exit('caffejax.export' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_net_without_a_loss_raises_an_error() -> None:
    net = Net('layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 } } }')
    model = CaffeModule(net, net.init(jax.random.key(0)))
    assert model({"x": jnp.ones(2)})["x"].shape == (2,)
    with pytest.raises(GraphError, match="this net has no loss in phase TEST; add a loss layer"):
        model.loss({"x": jnp.ones(2)})


def test_a_module_of_a_part_has_the_arrays_of_its_layers_only() -> None:
    """So AdamW does not decay, and Adam does not store, what the part does not compute with."""
    net = Net(RANDOM, "TRAIN")
    variables = net.init(jax.random.key(0))
    part = net.for_inference(["ip"])
    for model in (CaffeModule(part, variables), CaffeModule(net, variables)):
        assert jax.tree.structure(variables_of(model)) == jax.tree.structure(model.net.init(jax.random.key(0)))
    assert variables_of(CaffeModule(part, variables)).state == {}
    x = normal(64, 5)
    assert_equal(CaffeModule(part, variables)({"x": x})["ip"], part.apply(*variables, {"x": x})[0]["ip"])
    collections = to_linen(part, variables).init({"params": jax.random.key(0)}, {"x": x})
    assert set(collections) == {"params"}


def test_a_module_of_a_part_keeps_params_that_it_shares_with_a_removed_layer() -> None:
    shared = """
    layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
    layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" } param { name: "b" }
      inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
    layer { name: "b" type: "InnerProduct" bottom: "x" top: "b" param { name: "w" } param { name: "b" }
      inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
    """
    net = Net(shared)
    variables, part = net.init(jax.random.key(0)), net.for_inference(["b"])
    assert_equal(
        CaffeModule(part, variables)({"x": normal(2, 3)})["b"], net.apply(*variables, {"x": normal(2, 3)})[0]["b"]
    )
