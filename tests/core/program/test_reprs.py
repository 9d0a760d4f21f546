"""The reprs of nets, solvers, blobs and variables: short for any size, and without computation."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import caffejax
import caffejax.pycaffe as caffe

REPOSITORY = Path(__file__).parents[3]
LENET = "LeNet (TRAIN): 10 layers, data (64x1x28x28), label (64) -> loss (a number)"
NET = """
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 4 } }
"""


def test_the_repr_of_a_net_is_one_line() -> None:
    net = caffejax.Net(REPOSITORY / "configs" / "lenet" / "train_val.prototxt", "TRAIN")
    assert repr(net.graph) == LENET
    assert repr(net) == f"Net {LENET}; 431.1 k parameters"
    assert repr(net.graph.layer("conv1")) == "conv1 (Convolution): data -> conv1"
    assert repr(caffejax.Net(NET)) == "Net unnamed (TEST): 2 layers, data (2x3) -> fc (2x4); 16 parameters"
    html = caffejax.summarize(net)._repr_html_()
    assert html.startswith("<table>")
    assert html.count("<tr>") == 11


def test_reprs_escape_control_characters() -> None:
    net = caffejax.Net('name: "\\033[2J" ' + NET.replace('"fc"', '"f\\033c"'))
    for value in (net, net.graph, *net.graph.layers):
        assert repr(value).isprintable()


def test_the_repr_of_variables_has_their_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    net = caffejax.Net(NET)
    shapes = "Variables\n  params: 1 layer: fc (weight 4x3, bias 4)\n  state: none"
    assert repr(net.init(jax.random.key(0))) == shapes
    sorted_shapes = shapes.replace("weight 4x3, bias 4", "bias 4, weight 4x3")  # as JAX sorts the keys of dicts
    assert repr(jax.eval_shape(net.init, jax.random.key(0))) == sorted_shapes
    large_variables = caffejax.Variables(
        {f"l{i}": {"weight": jnp.zeros(3), "bias": jnp.zeros(())} for i in range(100)}, {}
    )
    assert "100 layers: l0 (weight 3, bias 0.0), " in repr(large_variables)
    assert repr(large_variables).endswith("..., l99 (weight 3, bias 0.0)\n  state: none")
    assert "Variables" in str(jax.jit(lambda v: repr(v) and v)(net.init(jax.random.key(0))))


def test_the_repr_of_variables_shows_what_functions_made_of_them() -> None:
    """Shapes, numbers and labels, as `jax.tree.map` over variables gives them; no array that has gone is read."""
    variables = caffejax.Net(NET).init(jax.random.key(0))

    def show(function: Any) -> str:
        return repr(jax.tree.map(function, variables)).splitlines()[1].removeprefix("  params: 1 layer: ")

    assert show(lambda x: x.shape) == "fc (bias (4,), weight (4, 3))"
    assert show(lambda x: jnp.sum(x * 0 + 1)) == "fc (bias 4.0, weight 12.0)"
    assert show(lambda x: float(x.size)) == "fc (bias 4.0, weight 12.0)"
    assert show(lambda x: "frozen") == "fc (bias 'frozen', weight 'frozen')"
    assert show(lambda x: x.sharding).count("SingleDevice") == 2
    assert "fc ('frozen')" in repr(caffejax.Variables({"fc": "frozen"}, {}))  # type: ignore[dict-item]
    gone = jnp.zeros(())
    gone.delete()
    assert "fc (weight a number)" in repr(caffejax.Variables({"fc": {"weight": gone}}, {}))
    assert repr(caffejax.Net(NET.splitlines()[1])).endswith("no parameters")


def test_reprs_of_solvers_and_pycaffe(tmp_path: Path) -> None:
    text = NET.replace("Input", "DummyData").replace("input_param", "dummy_data_param")
    (tmp_path / "net.prototxt").write_text(text)
    file = tmp_path / "s.prototxt"
    file.write_text('net: "net.prototxt" base_lr: 0.5 lr_policy: "fixed" max_iter: 9 snapshot_prefix: "x"')
    graph = "unnamed (TRAIN): 2 layers, nothing -> fc (2x4)"
    solver = caffejax.Solver(file)
    assert repr(solver) == (
        f"Solver of {graph}\n"
        f"  SGD, fixed, base_lr 0.5; iteration 0 of 9; 0 test nets; snapshots at x; on {jax.devices()[0]}"
    )
    caffe_solver = caffe.SGDSolver(str(file))
    # scripts may write to the tops of DummyData layers, which are inputs in pycaffe
    assert repr(caffe_solver) == f"SGD solver of Net {graph.replace('nothing', 'data (2x3)')}, iteration 0 of 9"
    assert repr(caffe_solver.net.blobs["data"]) == "Blob(2, 3)"
    assert repr(caffe_solver.net.params["fc"][0]) == "Blob(4, 3)"
    assert caffe_solver.net._repr_html_().startswith("<table>")
