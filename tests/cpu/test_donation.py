"""A training step reuses the memory of the old parameters."""

import re

import jax
import jax.numpy as jnp
import pytest

from caffejax.core.program.net import Net
from caffejax.core.schema.caffe_pb2 import SolverParameter
from caffejax.core.solver.caffe_optimizer import make_optimizer
from caffejax.core.solver.train_step import TrainState, make_step
from caffejax.cpu.kernels import onednn

NET = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 4 dim: 9 dim: 9 } } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 8 kernel_size: 3 } }
layer { name: "d" type: "Convolution" bottom: "c" top: "d" convolution_param { num_output: 7 kernel_size: 3 } }
layer { name: "ip" type: "InnerProduct" bottom: "d" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "ip2" type: "InnerProduct" bottom: "ip" top: "ip2"
  inner_product_param { num_output: 3 transpose: true } }
layer { name: "loss" type: "Reduction" bottom: "ip2" top: "loss" loss_weight: 1
  reduction_param { operation: SUMSQ } }
"""


@pytest.mark.skipif(onednn.unavailable_reason() is not None, reason="only oneDNN's calls make both gradients at once")
def test_a_donated_step_copies_no_weight() -> None:
    """XLA copies a weight unless it can prove that all reads of it come before the write."""
    net = Net(NET, "TRAIN")
    optimizer = make_optimizer(SolverParameter(type="SGD", momentum=0.9, weight_decay=0.1), net)
    variables = net.init(jax.random.key(0))
    ts = TrainState(*variables, optimizer.init(variables.params), jnp.int32(0), jax.random.key(1))
    step = jax.jit(make_step(net, optimizer, 1), donate_argnums=0)
    text = step.lower(ts, {"x": jnp.ones((1, 2, 4, 9, 9))}, 0.1).compile().as_text()
    shapes = re.findall(r"= f32\[([\d,]+)\]\S* copy\(%?ts_params", text)
    assert not [shape for shape in shapes if "," in shape]  # a bias may be
