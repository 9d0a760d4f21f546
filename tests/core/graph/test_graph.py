"""The properties of a graph: phase, inputs, layers on the host, row-wise layers."""

import pickle
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import Graph, Net, declare
from caffejax.base.databases import write_lmdb
from caffejax.base.errors import CaffejaxError
from caffejax.core.graph import build_graph, make_net_state
from caffejax.core.graph.reshape import reshape_graph
from caffejax.core.layers import register_temporarily
from caffejax.core.schema import caffe_pb2, read_net

INPUT = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 4 dim: 3 dim: 6 dim: 6 } } }\n'
PHASES = f"""{INPUT}
layer {{ name: "train_drop" type: "Dropout" bottom: "x" top: "d" include {{ phase: TRAIN }} }}
layer {{ name: "test_drop" type: "Dropout" bottom: "x" top: "d" include {{ phase: TEST }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "d" top: "ip" inner_product_param {{ num_output: 2 }} }}
"""
FILTER = """
layer { name: "s" type: "Input" top: "s" input_param { shape { dim: 4 } } }
layer { name: "filter" type: "Filter" bottom: "x" bottom: "s" top: "f" }
"""


def make_graph(text: str, phase: Any = "TEST") -> Graph:
    net = read_net(text)
    return build_graph(net, make_net_state(net, getattr(caffe_pb2, phase)))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    datum = caffe_pb2.Datum(channels=1, height=2, width=2, data=bytes(4), label=1).SerializeToString()
    write_lmdb(tmp_path / "db", [(b"0", datum)])
    return tmp_path / "db"


def test_with_phase_changes_every_layer_and_keeps_the_layers() -> None:
    train = make_graph(PHASES, "TRAIN")
    test = train.with_phase("TEST")
    assert (train.phase, test.phase) == ("TRAIN", "TEST")
    assert [layer.name for layer in test.layers] == ["in", "train_drop", "ip"]  # include rules are not applied again
    for before, after in zip(train.layers, test.layers, strict=True):
        assert (before.context.phase, before.definition.phase) == ("TRAIN", "TRAIN")
        assert (after.context.phase, after.definition.phase) == ("TEST", "TEST")
        assert after.params == before.params
        assert after.context != before.context  # so that each phase is traced separately
    assert test.blobs == train.blobs
    assert (test.input_layer_tops, test.outputs) == (train.input_layer_tops, train.outputs)


def test_changing_the_phase_twice_restores_the_graph() -> None:
    train = make_graph(PHASES, "TRAIN")
    assert train.with_phase("TEST").with_phase("TRAIN") == train
    assert train.with_phase("TRAIN") == train
    assert train.with_phase("TEST") != make_graph(PHASES, "TEST")


def test_with_phase_resolves_types_made_for_one_layer_again(tmp_path: Path) -> None:
    """Each HDF5Output layer gets its own type, because it writes its own file."""
    text = f"""{INPUT}layer {{ name: "out" type: "HDF5Output" bottom: "x" bottom: "x"
        hdf5_output_param {{ file_name: "{tmp_path / "out.h5"}" }} }}"""
    train = make_graph(text, "TRAIN")
    layer_types = [g.layers[-1].type for g in (train, train.with_phase("TEST"))]
    assert layer_types[0] != layer_types[1]
    assert [layer_type.name for layer_type in layer_types] == ["HDF5Output"] * 2
    assert all(layer_type.on_host for layer_type in layer_types)


def test_input_names_include_sources_and_caller_inputs_do_not(database: Path) -> None:
    result = make_graph(
        f"""layer {{ name: "in" type: "Input" top: "x" top: "y" input_param {{ shape {{ dim: 2 dim: 3 }} }} }}
        layer {{ name: "data" type: "Data" top: "image" top: "label"
                 data_param {{ source: "{database}" batch_size: 2 backend: LMDB }} }}
        layer {{ name: "arrays" type: "MemoryData" top: "m" top: "n"
                 memory_data_param {{ batch_size: 2 channels: 1 height: 2 width: 2 }} }}
        layer {{ name: "zeros" type: "DummyData" top: "zeros" dummy_data_param {{ shape {{ dim: 2 }} }} }}"""
    )
    assert result.input_names == ("x", "y", "image", "label", "m", "n")
    assert result.caller_inputs == ("x", "y", "m", "n")
    assert result.input_layer_tops == ("x", "y")  # MemoryData's arrays are set, they are no inputs


def test_a_net_may_have_no_inputs() -> None:
    result = make_graph('layer { name: "z" type: "DummyData" top: "z" dummy_data_param { shape { dim: 2 } } }')
    assert result.input_names == result.caller_inputs == result.input_layer_tops == ()


def test_graphs_with_host_layers_are_recognized(tmp_path: Path) -> None:
    output = f"""layer {{ name: "out" type: "HDF5Output" bottom: "x" bottom: "x"
        hdf5_output_param {{ file_name: "{tmp_path / "out.h5"}" }} }}"""
    relu = 'layer { name: "relu" type: "ReLU" bottom: "x" top: "x" }'
    assert not make_graph(INPUT + relu).has_host_layers
    for text in (FILTER, output):
        result = make_graph(INPUT + relu + text)
        assert result.has_host_layers
        assert result.with_phase("TRAIN").has_host_layers
        assert [layer.type.on_host for layer in result.layers if layer.name in ("relu", "filter", "out")] == [
            False,
            True,
        ]


LAYERS = {
    "ReLU": ("", True),  # element-wise
    "Dropout": ("", True),
    "Pooling": ("pooling_param { kernel_size: 2 stride: 2 }", True),
    "LRN": ("lrn_param { local_size: 3 }", True),
    "Convolution": ("convolution_param { num_output: 2 kernel_size: 3 }", True),
    "InnerProduct": ("inner_product_param { num_output: 2 }", True),
    "InnerProduct over rows": ("inner_product_param { num_output: 2 axis: 0 }", False),
    "Softmax over rows": ("softmax_param { axis: 0 }", False),
    "BatchNorm": ("batch_norm_param { use_global_stats: false }", False),
    "Reduction": ("", False),
}


@pytest.mark.parametrize("name", LAYERS)
def test_is_row_wise_agrees_with_the_computation(name: str) -> None:
    """Changing the first row of the input leaves the other rows of the top equal exactly if the layer is row-wise."""
    param, row_wise = LAYERS[name]
    net = Net(f'{INPUT}layer {{ name: "l" type: "{name.split()[0]}" bottom: "x" top: "y" {param} }}')
    assert net.graph.layers[-1].is_row_wise is row_wise
    params, state = net.init(jax.random.key(0))
    params = jax.tree.map(lambda a: jax.random.normal(jax.random.key(1), a.shape), params)
    x = np.random.default_rng(0).normal(size=(4, 3, 6, 6)).astype(np.float32)
    changed_input = x.copy()
    changed_input[0] *= 3
    before, after = (net.apply(params, state, {"x": a})[0]["y"] for a in (x, changed_input))
    other_rows_are_equal = before.shape[:1] == (4,) and np.allclose(before[1:], after[1:])
    assert other_rows_are_equal is row_wise


def test_a_graph_cannot_be_written_to() -> None:
    graph = Net('layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 } } }').graph
    with pytest.raises(TypeError):
        graph.blobs["x"] = graph.blobs["x"]  # type: ignore[index]
    assert pickle.loads(pickle.dumps(graph)).blobs == graph.blobs


def test_shapes_of_equal_layers_are_inferred_once_for_all_graphs_and_sizes() -> None:
    """A new size, or another type of the same name, is inferred again."""
    traced_shapes = []

    def double(x: Any) -> Any:
        traced_shapes.append(x.shape)
        return 2 * x

    text = INPUT + "".join(
        f'layer {{ name: "{name}" type: "Doubled" bottom: "x" top: "{name}" }}\n' for name in ("a", "b")
    )
    with register_temporarily(declare("Doubled")(double)):
        graphs = make_graph(text), make_graph(text)
        for large in [reshape_graph(original, {"x": (4, 3, 8, 6)}) for original in graphs]:
            assert large.blobs["a"].shape == large.blobs["b"].shape == (4, 3, 8, 6)
            assert reshape_graph(large, {"x": (4, 3, 6, 6)}).blobs["b"].shape == (4, 3, 6, 6)
    assert traced_shapes == [(4, 3, 6, 6), (4, 3, 8, 6)]
    with register_temporarily(declare("Doubled")(lambda x: jnp.concatenate([x, x]))):
        assert make_graph(text).blobs["a"].shape == (8, 3, 6, 6)


def test_reshaping_rejects_params_that_do_not_fit() -> None:
    net = make_graph(PHASES)
    for _ in range(2):  # errors are not stored
        with pytest.raises(CaffejaxError, match=r"ip.*blob 0 has shape \(2, 108\)"):
            reshape_graph(net, {"x": (4, 3, 7, 6)})
