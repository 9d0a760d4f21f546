"""Nets that Caffe refuses are refused when they are built, with the layer and the cause in the message."""

import json
from pathlib import Path

import pytest

from caffejax.errors import CaffejaxError
from caffejax.net import Net

GOLDEN = Path(__file__).parents[1] / "golden"

CAUSES = {
    "unknown_bottom": "unknown bottom blob 'pixels'",
    "slice_no_bottom": "takes exactly 1 bottom, but 0 given",
    "silence_with_top": "produces exactly 0 tops, but 1 given",
    "type_missing": "unknown layer type ''",
    "sigmoid_loss_counts": r"same count|\(3, 4\).*\(3, 5\)",
    "bias_shape": "dimension|shape",
    "slice_point_count": "slice_point",
    "pool_two_kernels": "either kernel_size or kernel_h and kernel_w, not both",
    "reduction_axis": "axis -3 is out of range",
    "embed_no_input_dim": "input_dim must be positive",
    "reshape_inplace": "does not allow in-place computation",
    "field_in_wrong_message": "num_output",
    "bottom_missing": "unknown bottom blob 'pixels'",
}
NETS = {n["prototxt"].split('"')[1]: n for n in json.loads((GOLDEN / "bad_nets.json").read_text())}


@pytest.mark.parametrize("name", NETS)
def test_refused_with_layer_and_cause(name: str, tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(NETS[name]["prototxt"])
    with pytest.raises(CaffejaxError, match=CAUSES[name]) as caught:
        Net(path, NETS[name]["phase"])
    assert str(path) in str(caught.value)
    if name == "field_in_wrong_message":  # known by its place, as to Caffe's parser
        assert "net.prototxt:8:" in str(caught.value)
    else:
        assert "layer 'layer'" in str(caught.value)


def test_every_problem_is_reported_at_once() -> None:
    text = """
    layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
    layer { name: "one" type: "Convolutoin" bottom: "data" top: "one" }
    layer { name: "two" type: "Convolution" bottom: "dta" top: "two" convolution_param { num_output: 2 } }
    layer { name: "three" type: "Pooling" bottom: "data" bottom: "data" top: "three" }
    """
    with pytest.raises(CaffejaxError) as caught:
        Net(text)
    assert [(p.layer, p.message) for p in caught.value.problems] == [
        ("one", "unknown layer type 'Convolutoin'; did you mean 'Convolution'?"),
        ("three", "takes exactly 1 bottom, but 2 given"),
        ("two", "unknown bottom blob 'dta' (bottom index 0); did you mean 'data'?"),
    ]


def test_shape_problems_of_independent_layers_are_reported_together() -> None:
    text = """
    layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
    layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
            convolution_param { num_output: 2 kernel_size: 99 } }
    layer { name: "after" type: "ReLU" bottom: "conv" top: "after" }
    layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" }
    """
    with pytest.raises(CaffejaxError) as caught:
        Net(text)
    assert [p.layer for p in caught.value.problems] == ["conv", "pool"]
    assert "(8, 8)" in caught.value.problems[0].message


POOL = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 6 dim: 6 } } }
layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param { kernel_size: 3 stride: 2 %s } }
"""


def test_settings_of_forks_are_followed_or_refused_never_ignored() -> None:
    assert Net(POOL % "").graph.blobs["pool"].shape == (1, 1, 3, 3)
    assert Net(POOL % "ceil_mode: false").graph.blobs["pool"].shape == (1, 1, 2, 2)
    with pytest.raises(
        CaffejaxError, match=r"layer 'pool' \(Pooling\): setting pooling_param\.torch_pooling \(of nvidia\)"
    ):
        Net(POOL % "torch_pooling: true")
    Net(POOL % "torch_pooling: false")  # the default changes nothing
