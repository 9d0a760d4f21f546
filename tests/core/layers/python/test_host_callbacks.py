"""Python layers with Caffe's interface in traced code, where they are callbacks."""

import logging
import os
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import host_callback_nets
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from host_callback_nets import EUCLIDEAN_LOSS, INPUTS, LINEAR, MESH_TRANSFORMS, NETS, SHAPES, TANH, TRANSFORMS
from python_nets import draw_inputs, input_layer, python_layer

from caffejax import LayerError, Net


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_of_python_layers_equal_those_of_built_in_layers(net: str, transform: str) -> None:
    host_callback_nets.compare(net, TRANSFORMS[transform])


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("transform", MESH_TRANSFORMS)
def test_transforms_on_eight_devices(net: str, transform: str, eight_devices: ProcessPoolExecutor) -> None:
    eight_devices.submit(host_callback_nets.compare_on_mesh, net, transform).result()


CALLBACK_ERRORS = (jax.errors.JaxRuntimeError, ValueError)  # for a program that runs in the calling thread
NET = INPUTS + LINEAR + TANH + EUCLIDEAN_LOSS % "t"


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        (lambda loss, p: jax.jvp(loss, (p,), (p,)), "in forward mode (jax.jvp)"),
        (lambda loss, p: jax.jit(lambda p: jax.jvp(loss, (p,), (p,)))(p), "in forward mode (jax.jvp)"),
        (lambda loss, p: jax.hessian(loss)(p), "twice"),
        (
            lambda loss, p: jax.grad(lambda p: sum(jax.tree.leaves(jax.tree.map(jnp.sum, jax.grad(loss)(p)))))(p),
            "twice",
        ),
        (lambda loss, p: jax.export.export(jax.jit(loss))(p), "export"),
        (lambda loss, p: jax.export.export(jax.jit(loss), platforms=["cpu", "cuda"])(p), "export"),
    ],
    ids=["jvp", "jit of jvp", "hessian", "grad of grad", "export", "export for two platforms"],
)
def test_errors_for_what_callbacks_cannot_do_name_the_layer(transform: Any, words: str) -> None:
    net = Net(NET, "TRAIN")
    params, state = net.init(jax.random.key(0))
    with pytest.raises(LayerError, match=r"^layer 'ip' \(Python\): runs on the host, where JAX cannot") as exc_info:
        transform(lambda p: net.loss(p, state, draw_inputs(*SHAPES))[0], params)
    assert words in str(exc_info.value)


def test_shapes_are_inferred_without_a_pass() -> None:
    text = input_layer((2, 2)) + python_layer("s", "FailsLater", "x0", "y", param_str="forward")
    net = Net(text)
    blobs, _ = jax.eval_shape(net.apply, {}, {}, {"x0": jnp.zeros((5, 2))})
    assert blobs["y"].shape == (5, 2)


@pytest.mark.parametrize(("method", "error"), [("forward", "ZeroDivisionError"), ("backward", "KeyError")])
def test_exceptions_in_compiled_code_name_the_layer_and_the_line(method: str, error: str) -> None:
    layer = python_layer("bad", "FailsLater", "x0", "y", "loss_weight: 1", method)
    net = Net(input_layer((2, 2)) + layer + "force_backward: true")
    grad = jax.jit(jax.grad(lambda x: net.loss({}, {}, {"x0": x})[0]))
    with pytest.raises(CALLBACK_ERRORS) as exc_info:
        jax.block_until_ready(grad(draw_inputs((2, 2))["x0"]))
    message = str(exc_info.value)
    assert re.search(
        rf"layer 'bad' \(Python\): {error}: .*in {method}.* \({error} in {method}, .*user_layers.py:", message
    )


def test_a_top_of_another_shape_in_compiled_code_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "layer_of_many_shapes.py").write_text("""
class Positive:
    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)
    def forward(self, bottom, top):
        rows = bottom[0].data[bottom[0].data[:, 0] > 0]
        top[0].reshape(*rows.shape)
        top[0].data[...] = rows
""")
    text = input_layer((4, 2)) + python_layer("p", "Positive", "x0", "y")
    net = Net(text.replace("user_layers", "layer_of_many_shapes"))
    x = np.array([[1, 2], [-1, 1], [3, 1], [-2, 0]], np.float32)
    np.testing.assert_array_equal(net.apply({}, {}, {"x0": x})[0]["y"], x[[0, 2]])
    run = jax.jit(lambda x: net.apply({}, {}, {"x0": x})[0]["y"])
    np.testing.assert_array_equal(run(np.abs(x) + 1), np.abs(x) + 1)
    with pytest.raises(CALLBACK_ERRORS, match=r"layer 'p' \(Python\): top 0 has shape \(2, 2\), but had"):
        run(x).block_until_ready()


def test_layers_that_only_write_are_left_out_of_traced_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    writer = (
        """layer { name: "%s" type: "HDF5Output" bottom: "ip" bottom: "x1" hdf5_output_param { file_name: "%s" } }"""
    )
    net = Net(NET + writer % ("first", "first.h5") + writer % ("second", "second.h5"), "TRAIN")
    assert net.host_layers == ("ip", "first", "second")
    params, state = net.init(jax.random.key(0))
    inputs = draw_inputs(*SHAPES)
    with caplog.at_level(logging.WARNING, logger="caffejax"):
        expected = Net(NET, "TRAIN").loss(params, state, inputs)[0]
        for transform in (jax.jit, jax.jit, jax.checkpoint):
            np.testing.assert_allclose(transform(net.loss)(params, state, inputs)[0], expected, rtol=1e-6)
        grads = jax.jit(jax.grad(net.loss, has_aux=True))(params, state, inputs)[0]
        assert not [*tmp_path.iterdir()]
    assert [r.getMessage() for r in caplog.records] == [
        "these layers only write, and are left out where JAX traces the net: 'first', 'second'"
    ]
    eager_grads = jax.grad(net.loss, has_aux=True)(params, state, inputs)[0]
    assert {file.name for file in tmp_path.iterdir()} == {"first.h5", "second.h5"}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), grads, eager_grads)


def test_layers_that_may_keep_a_state_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """`stateless = True` in a class answers the question."""
    text = INPUTS + LINEAR + python_layer("loss", "Euclidean", "ip x1", "loss", "loss_weight: 1")
    net = Net(text + python_layer("metric", "Euclidean", "ip x1", "metric"), "TRAIN")
    params, state = net.init(jax.random.key(0))
    with caplog.at_level(logging.WARNING, logger="caffejax"):
        net.apply(params, state, draw_inputs(*SHAPES))
        jax.grad(net.loss, has_aux=True)(params, state, draw_inputs(*SHAPES))
        assert not caplog.records
        for _ in range(2):
            jax.jit(net.apply)(params, state, draw_inputs(*SHAPES))
    assert [r.getMessage() for r in caplog.records] == [
        "where JAX traces the net, these Python layers may not run exactly once a pass: 'loss', 'metric'. If what they "
        "compute depends on their arguments alone, set stateless = True in their classes"
    ]


RUNS_A_NET = """
import jax, numpy as np, caffejax
NET = '''layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 700 dim: 700 } } }
  layer { name: "p" type: "Python" bottom: "x" top: "y" python_param { module: "runs_a_net" layer: "%s" } }'''

class Double:
    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)
    def forward(self, bottom, top):
        top[0].data[...] = 2 * bottom[0].data
    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = 2 * top[0].diff

class RunsANet(Double):
    def setup(self, bottom, top):
        net = caffejax.Net(NET % "Double")
        self.run = jax.jit(lambda x: jax.numpy.sin(net.apply({}, {}, {"x": x})[0]["y"]) @ x)
        self.pull = lambda x, d: jax.vjp(self.run, x)[1](d)[0]
    def forward(self, bottom, top):
        top[0].data[...] = self.run(bottom[0].data)
    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = self.pull(bottom[0].data, top[0].diff)

if __name__ == "__main__":
    net = caffejax.Net(NET % "RunsANet")
    x = np.full((700, 700), 1e-3, np.float32)
    gradient = jax.jit(jax.grad(lambda x: net.apply({}, {}, {"x": x})[0]["y"].sum()))
    expected = jax.grad(lambda x: (jax.numpy.sin(2 * x) @ x).sum())(x)
    for _ in range(5):
        np.testing.assert_allclose(gradient(x), expected, rtol=1e-4)
    print("done")
"""


def test_a_layer_that_runs_a_net_does_not_hang(tmp_path: Path) -> None:
    """The net inside has a Python layer, too, so that both of two threads of JAX are in a callback."""
    file = tmp_path / "runs_a_net.py"
    file.write_text(RUNS_A_NET)
    result = subprocess.run(
        [sys.executable, file.name],
        cwd=tmp_path,
        env={**os.environ, "NPROC": "2"},  # the number of threads of JAX's CPU client
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
