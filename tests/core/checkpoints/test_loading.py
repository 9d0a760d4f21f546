"""Weights loaded into nets: the blobs and the outputs that Caffe had after loading the same file."""

import json
import os
from pathlib import Path

import jax
import numpy as np
import pytest

from caffejax.base.errors import WeightsError
from caffejax.base.variables import Variables
from caffejax.core.checkpoints.caffemodel import read_caffemodel
from caffejax.core.checkpoints.load_save import load_weights, save_weights
from caffejax.core.program.net import Net

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "weights"
CASES = json.loads((GOLDEN / "index.json").read_text())


def make_initial_variables(net: Net) -> Variables:
    return net.init(jax.random.key(0))


def get_blob(net: Net, variables: Variables, layer: str, index: int) -> jax.Array:
    param = net.graph.layer(layer).params[index]
    tree = variables.params if param.spec.learnable else variables.state
    return tree[param.owner.layer][param.owner.name]


@pytest.mark.parametrize("case", [c for c in CASES if c["expected"]], ids=lambda c: c["case"])
def test_blobs_and_outputs_equal_caffes(case):
    net = Net(GOLDEN / case["net"], "TEST")
    variables = load_weights(GOLDEN / case["weights"], net.graph, make_initial_variables(net))
    with np.load(GOLDEN / case["expected"]) as recorded:
        for name in (n for n in recorded if n.startswith("param/")):
            _, layer, index = name.split("/")
            np.testing.assert_array_equal(get_blob(net, variables, layer, int(index)), recorded[name], err_msg=name)
        inputs = {n.removeprefix("in/"): recorded[n] for n in recorded if n.startswith("in/")}
        expected = {n.removeprefix("out/"): recorded[n] for n in recorded if n.startswith("out/")}
        outputs, _ = net.apply(*variables, inputs)
        assert set(outputs) == set(expected) != set()
        for name, expected_output in expected.items():
            np.testing.assert_allclose(outputs[name], expected_output, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("case", [c for c in CASES if not c["expected"]], ids=lambda c: c["case"])
def test_refuses_the_files_that_caffe_refuses(case):
    net = Net(GOLDEN / case["net"], "TEST")
    with pytest.raises(WeightsError) as exc_info:
        load_weights(GOLDEN / case["weights"], net.graph, make_initial_variables(net))
    caffe_message = case["error"]["message"]
    layer = caffe_message.split("'")[1] if "shape mismatch" in caffe_message else caffe_message.split()[-1]
    (problem, *_) = [p for p in exc_info.value.problems if p.layer == layer]
    assert str(problem).startswith(f"{GOLDEN / case['weights']}: layer '{layer}': ")
    assert problem.message.endswith("rename the layer to train it from scratch")


@pytest.mark.parametrize("suffix", ["", ".h5"])
@pytest.mark.parametrize("name", ["current", "shared"])
def test_saved_weights_are_loaded_unchanged(tmp_path, name, suffix):
    net = Net(GOLDEN / f"{name}.prototxt", "TEST")
    variables = load_weights(GOLDEN / f"{name}.caffemodel", net.graph, make_initial_variables(net))
    path = tmp_path / f"x.caffemodel{suffix}"
    save_weights(path, net.graph, variables)
    reloaded = load_weights(path, net.graph, make_initial_variables(net))
    jax.tree.map(np.testing.assert_array_equal, reloaded, variables)


def test_blobs_missing_in_hdf5_must_be_shared(tmp_path):
    net = Net(GOLDEN / "shared.prototxt", "TEST")
    unshared_net = Net((GOLDEN / "shared.prototxt").read_text().replace('name: "w"', ""), "TEST")
    path = GOLDEN / "shared_h5.caffemodel.h5"
    load_weights(path, net.graph, make_initial_variables(net))
    with pytest.raises(WeightsError, match=r"layer 'ip_b': the file has 1 blob, the net 2; .* rename the layer"):
        load_weights(path, unshared_net.graph, make_initial_variables(unshared_net))
    save_weights(tmp_path / "x.caffemodel", net.graph, make_initial_variables(net))
    assert len(read_caffemodel(tmp_path / "x.caffemodel")["ip_b"]) == 2


def test_weights_do_not_change_with_their_file(tmp_path):
    """Blobs at any offset in the file, also where an array could use the file's memory."""
    for padding in range(64):
        text = (GOLDEN / "plain.prototxt").read_text().replace('name: "', f'name: "{"x" * padding}', 1)
        net = Net(text, "TEST")
        variables, path = make_initial_variables(net), tmp_path / "x.caffemodel"
        save_weights(path, net.graph, variables)
        loaded = load_weights(path, net.graph, variables)
        with open(path, "r+b") as file:
            file.write(bytes(os.path.getsize(path)))
        jax.tree.map(np.testing.assert_array_equal, loaded, variables)
