"""Strings that are not UTF-8, which Caffe's protobuf takes as bytes, are read as Latin-1 and written as they were."""

from pathlib import Path

import jax
import numpy as np
import pytest

from caffejax import Net, dnn, load_weights, read_caffemodel, save_weights
from caffejax import pycaffe as caffe
from caffejax.base.paths import find_file
from caffejax.core.schema import read_net

TEXT = """name: "Bl{0}ten" # Stra{0}e
layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: 1 dim: 2 }} }} }}
layer {{ name: "f{0}r" type: "InnerProduct" bottom: "data" top: "s{0}" inner_product_param {{ num_output: 3
  weight_filler {{ type: "constant" value: 0.5 }} }} }}
layer {{ name: "r" type: "ReLU" bottom: "s{0}" top: "s{0}" }}
"""


@pytest.mark.parametrize("letter", [b"\xfc", "ü".encode(), b"\\374", b"\\xfc"])
def test_names_load_and_are_written_back(tmp_path: Path, letter: bytes) -> None:
    path = tmp_path / "net.prototxt"
    path.write_bytes(letter.join(TEXT.format("\0").encode().split(b"\0")))
    net = Net(path)
    assert net.graph.name == "Blüten"
    assert net.outputs == ("sü",)
    variables = net.init(jax.random.key(0))
    top = net.apply(*variables, {"data": np.ones((1, 2))})[0]["sü"]
    np.testing.assert_array_equal(top, np.ones((1, 3)))
    model = tmp_path / "net.caffemodel"
    save_weights(model, net.graph, variables)
    stored = letter if letter[0] > 127 else b"\xfc"
    for name in (b"Bl%sten", b"f%sr", b"s%s"):  # as Caffe, which compares bytes, reads them from the prototxt
        assert name % stored in model.read_bytes()
    if stored == b"\xfc":
        assert "ü".encode() not in model.read_bytes()
    assert list(read_caffemodel(model)) == ["data", "für", "r"]
    loaded = load_weights(model, net.graph, variables)
    np.testing.assert_array_equal(loaded.params["für"]["weight"], np.full((3, 2), 0.5))
    caffe_net = caffe.Net(str(path), caffe.TEST, weights=str(model))
    assert list(caffe_net.params) == ["für"]
    dnn_net = dnn.readNetFromCaffe(path.read_bytes(), model.read_bytes())
    assert dnn_net.getLayerNames() == ("für", "r")
    dnn_net.setInput(np.ones((1, 2)))
    np.testing.assert_array_equal(dnn_net.forward(), np.ones((1, 3)))


def test_paths_in_latin1_are_found(tmp_path: Path) -> None:
    name = b"Bl\xfcten"
    try:
        with open(bytes(tmp_path) + b"/" + name, "wb"):
            pass
    except OSError:
        pytest.skip("the file system takes names in UTF-8 only")
    net = read_net('layer { name: "d" type: "Data" top: "d" data_param { source: "Bl\udcfcten" } }\n')
    assert find_file(net.layer[0].data_param.source, tmp_path).exists()
