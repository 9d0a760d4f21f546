"""Policies of `jax.checkpoint` see the products and the blobs of a net."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_policies

from caffejax import Net

LENET = Path(__file__).parents[3] / "configs" / "lenet" / "train_val.prototxt"
KEY = jax.random.key(0)
ALL_TYPES = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 4 dim: 8 dim: 8 } } }
layer { name: "grouped" type: "Convolution" bottom: "x" top: "grouped"
  convolution_param { num_output: 6 kernel_size: 3 group: 2 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "grouped" top: "grouped" }
layer { name: "norm" type: "LRN" bottom: "grouped" top: "norm" }
layer { name: "up" type: "Deconvolution" bottom: "norm" top: "up"
  convolution_param { num_output: 3 kernel_size: 2 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "pool" type: "Pooling" bottom: "up" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "sum" type: "Reduction" bottom: "ip" top: "sum" loss_weight: 1 reduction_param { operation: SUMSQ } }
"""
CONV1, CONV2, IP1, IP2 = (16, 20, 24, 24), (16, 50, 8, 8), (16, 500), (16, 10)
POLICIES = {
    "nothing": (checkpoint_policies.nothing_saveable, []),
    "dots": (checkpoint_policies.dots_saveable, [CONV1, CONV2, IP1, IP2]),
    "dots without batch": (checkpoint_policies.dots_with_no_batch_dims_saveable, [IP1, IP2]),
    "names": (checkpoint_policies.save_only_these_names("conv2", "pool1"), [(16, 20, 12, 12), CONV2]),
    "wrong name": (checkpoint_policies.save_only_these_names("conv9"), []),
}


def count_saved(function: Any, *arguments: Any) -> tuple[list[tuple[int, ...]], Any]:
    """Return the shapes of the arrays that the backward pass keeps beside the arguments, and the gradient."""
    value, pull_back = jax.vjp(function, *arguments)
    given = jax.tree.leaves(arguments)
    kept = [a.shape for a in jax.tree.leaves(pull_back) if not any(a is b for b in given)]
    return kept, pull_back(jnp.ones_like(value))


@pytest.mark.parametrize("kernels", ["fast", "reference"])
@pytest.mark.parametrize("name", POLICIES)
def test_policies_save_what_they_name_and_change_no_gradient(name: str, kernels: Any) -> None:
    policy, expected = POLICIES[name]
    net = Net(LENET, "TRAIN", kernels=kernels)
    params, state = net.init(KEY)
    images, labels = jax.random.normal(KEY, (16, 1, 28, 28)), jnp.arange(16) % 10

    def loss(params: Any, images: Any) -> Any:
        return net.loss(params, state, {"data": images, "label": labels})[0]

    saved, gradient = count_saved(jax.checkpoint(loss, policy=policy), params, images)
    saved = [shape for shape in saved if shape != labels.shape]  # a constant of the loss
    assert saved == expected
    jax.tree.map(np.testing.assert_array_equal, gradient, count_saved(loss, params, images)[1])


@pytest.mark.parametrize("transform", ["eager", "jit", "vmap"])
def test_policies_see_the_products_of_every_tuned_operation(transform: str) -> None:
    """Of grouped convolutions and deconvolutions as well, compiled and mapped, and nothing else."""
    net = Net(ALL_TYPES)
    params, state = net.init(KEY)
    x = jax.random.normal(KEY, (2, 4, 8, 8))

    def loss(params: Any, x: Any) -> Any:
        return net.loss(params, state, {"x": x})[0]

    def transformed(loss: Any) -> Any:
        if transform == "vmap":
            return lambda params, x: jax.vmap(loss, (None, 0))(params, x[:, None]).sum()
        return jax.jit(loss) if transform == "jit" else loss

    checkpointed = jax.checkpoint(loss, policy=checkpoint_policies.dots_saveable)
    saved, gradient = count_saved(transformed(checkpointed), params, x)
    sizes = sorted(int(np.prod(shape)) for shape in saved)
    given = {a.size for a in jax.tree.leaves((params, x))}  # jit returns arguments, too
    assert [size for size in sizes if size not in given] == [2 * 5, 2 * 6 * 6 * 6, 2 * 3 * 12 * 12]
    expected = count_saved(transformed(loss), params, x)[1]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), gradient, expected)


def test_names_of_blobs_change_nothing_else() -> None:
    """A compiled step is the same program with and without them: the names are gone when it is lowered."""
    net = Net(LENET, "TRAIN")
    params, state = net.init(KEY)
    batch = {"data": jnp.ones((2, 1, 28, 28)), "label": jnp.zeros(2)}
    text = jax.jit(lambda p: net.loss(p, state, batch)[0]).lower(params).as_text()
    assert "name[" not in text
    assert "conv1" in str(jax.make_jaxpr(lambda p: net.loss(p, state, batch)[0])(params))
