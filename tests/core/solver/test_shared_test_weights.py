"""Tests use the trained weights of every layer, whichever layer owns them in the test net."""

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import caffejax
import caffejax.pycaffe as caffe
from caffejax.base.variables import Variables
from caffejax.cli import main
from caffejax.core.graph.trained_layers import separate_params
from caffejax.core.program.net import Net
from caffejax.core.solver.evaluate import copy_trained_params, find_shape_mismatches

DATA = """layer { name: "x" type: "DummyData" top: "a" dummy_data_param { shape { dim: 1 dim: 1 }
  data_filler { value: 1 } } }
"""


def format_layer(name: str, phases: str, top: str = "", filler: float = 1, param: str = "w", loss: int = 0) -> str:
    """Return an InnerProduct layer with one weight. `phases` is "TRAIN", "TEST" or "" for both."""
    rule = f"include {{ phase: {phases} }}" if phases else ""
    shared = f'param {{ name: "{param}" }}' if param else ""
    weight = f"loss_weight: {loss}" if loss else ""
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "a" top: "{top or name}" {rule} {shared} {weight} '
        f"inner_product_param {{ num_output: 1 bias_term: false weight_filler {{ value: {filler} }} }} }}\n"
    )


def list_nets() -> Iterator[list[tuple[str, str, str]]]:
    """Yield layers (name, phases, param) of nets: three layers in all phases and orders, of which two or all share."""
    for phases in itertools.product(["", "TRAIN", "TEST"], repeat=3):
        for params in (("w", "w", "w"), ("w", "w", ""), ("w", "", "w"), ("", "w", "w")):
            yield list(zip("ABC", phases, params, strict=True))


def copy_by_layer(test_net: Net, train_net: Net, trained: dict[str, float]) -> dict[str, float]:
    """Return what each test layer must use: its own trained weight, else that of a layer that it shares with, else 0.

    Args:
        trained: the trained weight of each layer of the train net.
    """
    test_layers = [layer for layer in test_net.graph.layers if layer.params]
    expected = {}
    for layer in test_layers:
        sharers = [other.name for other in test_layers if other.params[0].owner == layer.params[0].owner]
        expected[layer.name] = next((trained[name] for name in (layer.name, *sharers) if name in trained), 0.0)
    return expected


def make_variables(net: Net, value: float) -> Variables:
    numbers = itertools.count()
    params = net.map_params(lambda param: jnp.full((1, 1), value and value + next(numbers)))
    return Variables(params, {})


def test_every_order_of_owners_and_sharers() -> None:
    """Layers of both phases, of TRAIN and of TEST, in all orders, with equal and with different params."""
    for layers in list_nets():
        text = DATA + "".join(format_layer(name, phases, param=param) for name, phases, param in layers)
        train_net, test_net = Net(text, "TRAIN"), Net(text, "TEST")
        trained = make_variables(train_net, 10)
        weights = {
            layer.name: layer.params[0].array(*trained).item() for layer in train_net.graph.layers if layer.params
        }
        variables = copy_trained_params(test_net.graph, make_variables(test_net, 0), train_net.graph, trained)
        actual = {
            layer.name: layer.params[0].array(*variables).item() for layer in test_net.graph.layers if layer.params
        }
        assert actual == copy_by_layer(test_net, train_net, weights), layers


def test_layers_that_share_in_the_test_net_only() -> None:
    """Each uses its own trained weight, as in Caffe, and a layer of the test net alone that of the first."""
    train_net = Net(DATA + "".join(format_layer(name, "", param="") for name in "ABC"), "TRAIN")
    text = "".join(format_layer(name, "", param="v" if name in "CD" else "w") for name in "BACDE")
    test_net = Net(DATA + text, "TEST")
    graph = separate_params(test_net.graph, train_net.graph)
    trained = Variables(
        {name: {"weight": jnp.full((1, 1), value)} for name, value in zip("ABC", (1, 2, 3), strict=True)}, {}
    )
    test_net = test_net.with_graph(graph, reshaped=True)
    variables = copy_trained_params(graph, make_variables(test_net, 0), train_net.graph, trained)
    actual = {layer.name: layer.params[0].array(*variables).item() for layer in graph.layers if layer.params}
    assert actual == {"A": 1, "B": 2, "C": 3, "D": 3, "E": 2}
    assert separate_params(train_net.graph, test_net.graph) is train_net.graph
    assert not find_shape_mismatches(graph, train_net.graph)


def test_sharing_of_different_shapes() -> None:
    """With share_mode PERMISSIVE the owner in the test net may have another shape than the owner in the train net."""
    layer = (
        'layer {{ name: "{0}" type: "Parameter" top: "{0}" parameter_param {{ shape {{ {1} }} }} '
        'param {{ name: "w" share_mode: PERMISSIVE }} {2} }}'
    )
    text = layer.format("p", "dim: 2 dim: 3", "include { phase: TEST }") + layer.format("q", "dim: 6", "")
    train_net, test_net = Net(text, "TRAIN"), Net(text, "TEST")
    trained = Variables({"q": {"weight": jnp.arange(6.0)}}, {})
    initial = Variables({"p": {"weight": jnp.zeros((2, 3))}}, {})
    variables = copy_trained_params(test_net.graph, initial, train_net.graph, trained)
    np.testing.assert_array_equal(variables.params["p"]["weight"], [[0, 1, 2], [3, 4, 5]])
    blobs, _ = test_net.apply(*variables, {})
    np.testing.assert_array_equal(blobs["q"], np.arange(6.0))


SOLVER = """
net: "net.prototxt" base_lr: 0.5 lr_policy: "fixed" max_iter: 1 test_iter: 1 test_interval: 1 snapshot_prefix: "s"
solver_mode: CPU random_seed: 1
"""
OWNERS = {
    "TEST-only first": format_layer("q", "TEST", filler=9) + format_layer("k", "", loss=1),
    "TEST-only last": format_layer("k", "", loss=1) + format_layer("q", "TEST", filler=9),
    "TRAIN-only first": format_layer("t", "TRAIN", loss=1) + format_layer("k", ""),
    "three": format_layer("q", "TEST", filler=9) + format_layer("t", "TRAIN", loss=1) + format_layer("k", ""),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_solver(layers: str) -> str:
    Path("net.prototxt").write_text(DATA + layers)
    Path("solver.prototxt").write_text(SOLVER)
    return "solver.prototxt"


@pytest.mark.parametrize("owner", OWNERS)
def test_tests_during_training(owner: str) -> None:
    """The gradient of the loss is 1, so the weight is 1 before the step and 0.5 after it, in each way to test."""
    solver = caffejax.Solver(write_solver(OWNERS[owner]))
    for expected in (1, 0.5):
        (scores,) = solver.test()
        assert {value.item() for value in scores.outputs.values()} == {expected}
        if expected == 1:
            solver.step(1)
    solver.close()
    pycaffe_solver = caffe.SGDSolver("solver.prototxt")
    pycaffe_solver.solve()
    (net,) = pycaffe_solver.test_nets
    for _ in range(2):  # what the last test left, then a pass by hand
        assert {net.blobs[name].data.item() for name in net.outputs} == {0.5}
        assert {net.params[name][0].data.item() for name in net.params} == {0.5}
        net.forward()
    other = caffe.Net("net.prototxt", caffe.TEST)
    other.share_with(pycaffe_solver.net)
    assert {value.item() for value in other.forward().values()} == {0.5}
    pycaffe_solver.net.params["k"][0].data[...] = 3
    assert {net.params[name][0].data.item() for name in net.params} == {3}
    assert {value.item() for value in other.forward().values()} == {3}


def test_the_command_tests_with_trained_weights(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", f"--solver={write_solver(OWNERS['TEST-only first'])}"]) == 0
    lines = [line.split("] ")[-1].strip() for line in capsys.readouterr().err.splitlines() if "Test net output" in line]
    assert [line.split("= ", 1)[1].split()[0] for line in lines] == ["1", "1", "0.5", "0.5"]


def test_share_with_a_net_that_shares_less_is_an_error() -> None:
    net = caffe.Net(DATA + format_layer("A", "") + format_layer("B", ""), caffe.TEST)
    other = caffe.Net(DATA + format_layer("A", "", param="") + format_layer("B", "", param=""), caffe.TEST)
    with pytest.raises(caffejax.GraphError, match=r"layer 'B' .*shares blob 0 with layer 'A' in one net, but not in"):
        net.share_with(other)
    other.share_with(net)
    net.params["A"][0].data[...] = 7
    assert {value.item() for value in other.forward().values()} == {7}


EQUAL_NAMES = format_layer("fc", "", "f1", 1, "", 1) + format_layer("fc", "", "f2", 5, "", 1)


def test_two_layers_of_one_name(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is tested with its own weights, and each net says so when it is made."""
    expected = {"f1": 0.5, "f2": 4.5}
    path = write_solver(EQUAL_NAMES)
    with caplog.at_level(logging.WARNING, "caffejax"):
        solver = caffejax.Solver(path)
    solver.step(1)
    assert {name: value.item() for name, value in solver.test()[0].outputs.items()} == expected
    solver.close()
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2  # one for each net
    assert all("net.prototxt: 2 layers are named 'fc'" in w and "give each layer its own name" in w for w in warnings)
    assert "'f1'" in warnings[0]
    assert "'f2'" in warnings[0]
    pycaffe_solver = caffe.SGDSolver(path)
    pycaffe_solver.solve()
    (net,) = pycaffe_solver.test_nets
    assert {name: net.blobs[name].data.item() for name in net.outputs} == expected
    capsys.readouterr()
    assert main(["check", "net.prototxt"]) == 0
    assert "2 layers are named 'fc'" in " ".join(capsys.readouterr().out.split())


def test_equal_names_in_one_phase() -> None:
    """Layers of one name belong together by their tops, whatever their position is."""
    layers = format_layer("fc", "TRAIN", "f1", 2, "") + format_layer("fc", "", "f2", 1, "", loss=1)
    solver = caffejax.Solver(write_solver(layers))
    solver.step(1)
    assert solver.test()[0].outputs["f2"].item() == 0.5
    solver.close()


def test_equal_names_without_params_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    layer = 'layer {{ name: "relu" type: "ReLU" bottom: "{}" top: "{}" }}'
    Net(DATA + layer.format("a", "b") + layer.format("b", "c"), "TEST")
    assert not caplog.records
