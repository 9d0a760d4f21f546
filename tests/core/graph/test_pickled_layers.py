"""Pickled and copied layers keep the result of probing their sources."""

import copy
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest

from caffejax import Graph
from caffejax.base.databases import write_lmdb
from caffejax.core.graph import build_graph, make_net_state
from caffejax.core.schema import caffe_pb2, read_net

COPIES: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """Return a graph that reads an LMDB, transformed on the device, and an HDF5 file; the files have been deleted."""
    folder = tmp_path / "data"
    folder.mkdir()
    datum = caffe_pb2.Datum(channels=1, height=2, width=3, data=bytes(range(6)), label=1).SerializeToString()
    write_lmdb(folder / "db", [(b"0", datum)])
    with h5py.File(folder / "rows.h5", "w") as file:
        file["rows"] = np.zeros((4, 5), np.float32)
    (folder / "list.txt").write_text(f"{folder / 'rows.h5'}\n")
    net = read_net(f"""
        layer {{ name: "data" type: "Data" top: "image" top: "label"
                 transform_param {{ scale: 0.5 mean_value: 2 }}
                 data_param {{ source: "{folder / "db"}" batch_size: 4 backend: LMDB }} }}
        layer {{ name: "rows" type: "HDF5Data" top: "rows"
                 hdf5_data_param {{ source: "{folder / "list.txt"}" batch_size: 2 }} }}
        layer {{ name: "ip" type: "InnerProduct" bottom: "rows" top: "ip" inner_product_param {{ num_output: 2 }} }}""")
    result = build_graph(net, make_net_state(net, caffe_pb2.TRAIN))
    shutil.rmtree(folder)
    return result


@pytest.mark.parametrize("make_copy", COPIES, ids=["copy", "deepcopy", "pickle"])
def test_source_specs_are_copied_with_their_layers(graph: Graph, make_copy: Callable[[Any], Any]) -> None:
    for layer in graph.layers[:2]:
        layer_copy = make_copy(layer)
        assert layer.source_spec is not None
        assert layer_copy.source_spec.tops == layer.source_spec.tops
        assert (layer_copy.source_spec.device_transform is None) == (layer.source_spec.device_transform is None)
        assert layer_copy.definition == layer.definition
        assert layer_copy.context == layer.context
    assert make_copy(graph.layers[2]) == graph.layers[2]
    assert graph.layers[2].source_spec is None


@pytest.mark.parametrize("make_copy", COPIES, ids=["copy", "deepcopy", "pickle"])
def test_a_copy_applies_the_same_device_transform(graph: Graph, make_copy: Callable[[Any], Any]) -> None:
    images = np.arange(24, dtype=np.uint8).reshape(4, 1, 2, 3)
    labels = np.arange(4, dtype=np.float32)
    data, rows, _ = make_copy(graph).layers
    image, label = data.transform_on_device([images, labels])
    np.testing.assert_array_equal(image, (images.astype(np.float32) - 2) / 2)
    np.testing.assert_array_equal(label, labels)
    np.testing.assert_array_equal(rows.transform_on_device([np.ones((2, 5), np.float32)])[0], np.ones((2, 5)))


@pytest.mark.parametrize("make_copy", COPIES, ids=["copy", "deepcopy", "pickle"])
def test_copies_of_graphs_keep_the_shapes_of_its_sources(graph: Graph, make_copy: Callable[[Any], Any]) -> None:
    graph_copy = make_copy(graph)
    assert graph_copy.blobs == graph.blobs
    assert graph_copy.blobs["image"] == jax.ShapeDtypeStruct((4, 1, 2, 3), np.float32)
    assert (
        graph_copy.with_phase("TEST").layers[0].source_spec.tops == graph.layers[0].source_spec.tops
    )  # nothing is looked at again
