"""Labels of params for optax: what the prototxt freezes stays, also under weight decay, in nets with statistics."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from caffejax import Net

NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 dim: 5 dim: 5 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" param { lr_mult: 0 } param { lr_mult: 0 }
  convolution_param { num_output: 2 kernel_size: 3
    weight_filler { type: "xavier" } bias_filler { type: "constant" value: 1 } } }
layer { name: "norm" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 reduction_param { operation: SUMSQ } }
"""


@pytest.mark.parametrize(
    "optimizer",
    [
        optax.adamw(1e-2, weight_decay=0.1),
        optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.01, momentum=0.9)),
    ],
    ids=["adamw", "sgd"],
)
def test_labels_of_the_prototxt_freeze_under_weight_decay(optimizer: optax.GradientTransformation) -> None:
    net = Net(NET, "TRAIN")
    params, state = net.init(jax.random.key(0))
    labels = net.map_params(lambda p: ("trained" if p.lr_mult else "frozen") if p.spec.learnable else None)
    assert jax.tree.structure(labels) == jax.tree.structure(params)
    frozen = optax.multi_transform({"trained": optimizer, "frozen": optax.set_to_zero()}, labels)
    history, new_params = frozen.init(params), params
    inputs = {"data": jnp.asarray(np.random.default_rng(0).standard_normal((4, 3, 5, 5)), jnp.float32)}
    for _ in range(2):
        grads = jax.grad(lambda p: net.loss(p, state, inputs)[0])(new_params)
        updates, history = frozen.update(grads, history, new_params)
        new_params = optax.apply_updates(new_params, updates)
    for index, blob in params["conv"].items():
        np.testing.assert_array_equal(new_params["conv"][index], blob)
    assert not np.allclose(new_params["ip"]["weight"], params["ip"]["weight"])
