"""Net.load and Net.save: round trips in every format, and the reports of loaded weights."""

from itertools import chain
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from caffejax import Net, Solver, Variables, WeightsError, read_caffemodel
from caffejax.core.checkpoints.caffemodel import write_caffemodel
from caffejax.core.checkpoints.weight_formats import FORMATS
from caffejax.core.graph.element_counts import count_elements
from caffejax.core.schema.caffe_pb2 import LayerParameter, NetParameter

SUFFIXES = [*FORMATS, ".caffemodel.h5", ".orbax/7"]
NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 4 dim: 4 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 3 kernel_size: 1 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }
layer { name: "scale" type: "Scale" bottom: "bn" top: "scale" scale_param { filler { value: 2 } bias_term: true } }
layer { name: "a" type: "InnerProduct" bottom: "scale" top: "a" param { name: "w" } param { name: "b" }
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "twin" type: "InnerProduct" bottom: "scale" top: "twin" param { name: "w" } param { name: "b" }
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
"""
OTHER_HEAD = NET.replace("twin", "head").replace('param { name: "w" } param { name: "b" }', "")
LSTM = """
layer { name: "x" type: "DummyData" top: "x" top: "cont" dummy_data_param { shape { dim: 3 dim: 2 dim: 4 }
  shape { dim: 3 dim: 2 } data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "lstm"
  recurrent_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "Reduction" bottom: "lstm" top: "loss" loss_weight: 1 }
"""


@pytest.fixture(autouse=True)
def _in_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def draw_variables(net: Net, seed: int = 1) -> Variables:
    """Return variables, including state, in which all numbers differ."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), net.init(jax.random.key(0)))


def assert_equal(actual: Any, expected: Any) -> None:
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, actual, expected)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_saved_weights_can_be_loaded(suffix: str) -> None:
    net = Net(NET, "TRAIN")
    params, state = draw_variables(net)
    net.save(params, state, f"x{suffix}")
    loaded, report = net.load_and_report(f"x{suffix}")
    assert_equal(loaded, Variables(params, state))
    assert (set(report.loaded) >= {"conv", "bn", "scale", "a"}, report.unused, report.missing) == (True, (), ())
    assert_equal(net.load(f"x{suffix}", draw_variables(net, seed=2)), Variables(params, state))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_params_of_a_removed_layer_are_those_of_the_whole_net(suffix: str) -> None:
    """`a` owns the params of `twin`, which alone remains. All but its bias filler are needed."""
    net = Net(NET.replace("num_output: 5 w", "num_output: 5 bias_filler { value: 3 } w", 1), "TRAIN")
    part = net.for_inference(["twin"])
    initial = net.init(jax.random.key(0))
    assert_equal(part.init(jax.random.key(0)), initial)
    assert_equal(part.map_params(lambda param: param.spec.shape), net.map_params(lambda param: param.spec.shape))
    assert count_elements(part.graph)[0] == sum(x.size for x in jax.tree.leaves(initial))
    variables = draw_variables(net)
    for source, target in ((net, part), (part, net), (part, part)):
        source.save(*variables, f"x{suffix}")
        loaded, report = target.load_and_report(f"x{suffix}")
        assert_equal(loaded, variables)
        assert report.missing == ()
    data = np.ones((2, 3, 4, 4), np.float32)
    expected, _ = net.with_phase("TEST").apply(*initial, {"data": data})
    np.testing.assert_allclose(part.freeze(initial)({"data": data})["twin"], expected["twin"], 1e-4)
    with pytest.raises(WeightsError, match=r"layer 'a' .*'bias' in params is missing"):
        part.apply(
            variables.params | {"a": {"weight": variables.params["a"]["weight"]}}, variables.state, {"data": data}
        )


@pytest.mark.parametrize("name", ["s.orbax", "s.orbax/2", "s_iter_2.caffemodel"])
def test_a_solvers_snapshots_are_weights(name: str) -> None:
    """Snapshots contain all values that a net needs, except recurrent state, which is not stored in blobs."""
    solver = Solver(f'net_param {{ {LSTM} }} base_lr: 0.1 lr_policy: "fixed" snapshot_prefix: "s"')
    solver.step(2)
    solver.snapshot()
    loaded = solver.net.load(name)
    assert_equal(loaded.params, solver.variables.params)
    assert_equal(loaded.state, solver.net.init(jax.random.key(0)).state)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_reports_list_loaded_unused_and_missing_layers(suffix: str) -> None:
    net, other = Net(NET), Net(OTHER_HEAD)
    path = f"x{suffix}"
    net.save(*draw_variables(net), path)
    variables = draw_variables(other, seed=2)
    loaded, report = other.load_and_report(path, variables, exclude=["conv"])
    assert (report.loaded, set(report.missing)) == (("bn", "scale", "a"), {"conv", "head"})
    assert set(chain(report.unused, ["twin"])) == {"conv", "twin"}
    for layer in ("conv", "head"):
        assert_equal(loaded.params[layer], variables.params[layer])
    assert_equal(loaded.params["a"], draw_variables(net).params["a"])
    assert "loaded:   3 (bn, scale, a)\n" in repr(report)
    assert "missing:  1 (head), in the net only; 1 (conv), named in `exclude`" in repr(report)


def test_the_weights_of_another_net_with_the_same_names_are_one_problem() -> None:
    net = Net(NET)
    other = {
        name: tuple(np.zeros((3, 2), np.float32) for _ in blobs) for name, blobs in draw_variables(net).params.items()
    }
    write_caffemodel("x.caffemodel", NetParameter(layer=[LayerParameter(name=name) for name in other]), other)
    with pytest.raises(
        WeightsError, match=r"weights of another net: .* both have differ \('\w+', .* 3 x 2 .*made"
    ) as exc_info:
        net.load("x.caffemodel")
    assert len(exc_info.value.problems) == 1


def test_mismatched_layers_are_rejected_unless_excluded() -> None:
    net, wider = Net(NET), Net(NET.replace("num_output: 5", "num_output: 6"))
    net.save(*draw_variables(net), "x.npz")
    with pytest.raises(
        WeightsError, match=r"layer 'a': blob 0 is .*, or rename the layer to train it from scratch"
    ) as exc_info:
        wider.load("x.npz")
    assert {p.layer for p in exc_info.value.problems} == {"a", "twin"}
    assert wider.load_and_report("x.npz", exclude=["a", "twin"])[1].unused == ("a", "twin")
    with pytest.raises(WeightsError, match=r"the path is the last argument"):
        net.save("x.npz", *draw_variables(net))  # type: ignore[arg-type]
    with pytest.raises(WeightsError, match="exclude: no layer 'twim' in the net; did you mean 'twin'"):
        net.load("x.npz", exclude=["twim"])


def test_layers_without_weights_in_the_file_are_initialised_by_the_key() -> None:
    net, other = Net(NET), Net(OTHER_HEAD)
    net.save(*draw_variables(net), "x.safetensors")
    for key in (jax.random.key(0), jax.random.key(7)):
        assert_equal(other.load("x.safetensors", key=key).params["head"], other.init(key).params["head"])


@pytest.mark.parametrize("name", ["x.bin", "x", "x.npy"])
def test_unknown_suffixes_are_rejected_before_writing(name: str) -> None:
    net = Net(NET)
    with pytest.raises(WeightsError, match=r"the name should end in one of \.caffemodel, \.h5, \.orbax"):
        net.save(*draw_variables(net), name)
    assert list(Path().iterdir()) == []


def test_folders_without_snapshots_are_rejected(tmp_path: Path) -> None:
    import orbax.checkpoint as ocp

    net = Net(NET)
    for name in ("own", "own.orbax"):
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(tmp_path / name, {"params": net.init(jax.random.key(0)).params})
        with pytest.raises(WeightsError, match=rf"{name}: is an orbax checkpoint, but not .*restore\(path, template\)"):
            net.load(name)
    Path("empty").mkdir()
    with pytest.raises(WeightsError, match=r"empty: this is a folder; name a file in it"):
        net.load("empty")


def test_params_of_another_net_are_refused(tmp_path: Path) -> None:
    net = Net(NET)
    with pytest.raises(WeightsError, match=r"layer 'head' .*'weight' in params is missing"):
        Net(OTHER_HEAD).save(*draw_variables(net), "x.npz")
    assert list(tmp_path.iterdir()) == []


def test_layers_with_equal_names_need_a_caffemodel() -> None:
    net = Net(NET.replace("twin", "conv").replace('top: "conv"', 'top: "c2"', 2).replace('"c2"', '"conv"', 1))
    net.save(*draw_variables(net), "x.caffemodel")
    assert "conv" in read_caffemodel("x.caffemodel")
    with pytest.raises(WeightsError, match=r"layer 'conv': a .npz file cannot store several layers of this name"):
        net.save(*draw_variables(net), "x.npz")


@pytest.mark.parametrize("suffix", [suffix for suffix in SUFFIXES if not suffix.endswith("/7")])
def test_missing_files_are_named_at_once(suffix: str) -> None:
    with pytest.raises(WeightsError, match=f"none{suffix}: no such"):
        Net(NET).load(f"none{suffix}")
