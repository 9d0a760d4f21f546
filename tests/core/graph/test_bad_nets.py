"""Nets that Caffe rejects are rejected when they are built, with the layer and the cause in the message."""

import json
from pathlib import Path

import pytest

from caffejax.base.errors import CaffejaxError, GraphError, SchemaError
from caffejax.core.program.net import Net
from caffejax.core.solver import Solver

GOLDEN = Path(__file__).parents[2] / "golden"

CAUSES = {
    "unknown_bottom": "unknown bottom blob 'pixels'",
    "slice_no_bottom": "takes exactly 1 bottom, but has 0",
    "silence_with_top": "produces exactly 0 tops, but has 1",
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
def test_errors_name_layer_and_cause(name: str, tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(NETS[name]["prototxt"])
    with pytest.raises(CaffejaxError, match=CAUSES[name]) as exc_info:
        Net(path, NETS[name]["phase"])
    assert str(path) in str(exc_info.value)
    if name == "field_in_wrong_message":  # known by its place, as to Caffe's parser
        assert "net.prototxt:8:" in str(exc_info.value)
    else:
        assert "layer 'layer'" in str(exc_info.value)


def test_every_problem_is_reported_at_once() -> None:
    text = """
    layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
    layer { name: "one" type: "Convolutoin" bottom: "data" top: "one" }
    layer { name: "two" type: "Convolution" bottom: "dta" top: "two" convolution_param { num_output: 2 } }
    layer { name: "three" type: "Pooling" bottom: "data" bottom: "data" top: "three" }
    """
    with pytest.raises(CaffejaxError) as exc_info:
        Net(text)
    without_forks = "; layer types of Caffe's forks are not built in"  # as core is tested alone
    assert [(p.layer, p.message.removesuffix(without_forks)) for p in exc_info.value.problems] == [
        ("one", "unknown layer type 'Convolutoin'; did you mean 'Convolution'?"),
        ("three", "takes exactly 1 bottom, but has 2"),
        ("two", "unknown bottom blob 'dta' (bottom index 0); did you mean 'data'?"),
    ]


MISSPELT = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: x } }
layer { name: "mine" type: "Mine" bottom: "conv" top: "mine" mine_param { a: 1 } }
layer { name: "ip" type: "InnerProduct" bottom: "mine" top: "ip" }
layer { name: "big" type: "Convolution" bottom: "data" top: "big"
  convolution_param { num_output: 2 kernel_size: 99 } }
"""
INPUT_LAYER = 'layer { name: "a" type: "Input" top: "x" input_param { shape { dim: 1 } } '
READERS = """
layer { name: "r" type: "ReLU" bottom: "x" top: "y" }
layer { name: "t" type: "Tanh" bottom: "x" top: "z" }"""


@pytest.mark.parametrize(
    ("text", "expected_lines"),
    [
        (MISSPELT, ["conv: num_output", "mine: LayerParameter has no", "mine: unknown layer type", "big: the kernel"]),
        (
            MISSPELT + INPUT_LAYER,
            ["conv: num_output", "mine: Layer", "a: the text ends", "mine: unknown", "big: the kernel"],
        ),
        # what the text lacks may be what produces these
        (INPUT_LAYER.replace("top", "tpo") + "}" + READERS, ["a: LayerParameter has no", "t: unknown layer type"]),
        ('input: "x" input_dmi: 1' + READERS, ["None: NetParameter has no", "t: unknown layer type"]),
        (
            'input: "x" input_dim: 1 input_dmi: 3' + READERS,
            ["None: NetParameter has no", "None: the net has 1 input (x), but 0 input shapes"],
        ),
        # nor does a rule count that is wrong
        (
            INPUT_LAYER.replace('"a"', '"b"')
            + f"include {{ phase: TRIAN }} }} {INPUT_LAYER} include {{ phase: TEST }} }} {READERS}",
            ["phase: 'TRIAN' is not a value", "t: unknown layer type"],
        ),
    ],
)
def test_text_problems_neither_hide_nor_cause_other_problems(text: str, expected_lines: list[str]) -> None:
    with pytest.raises(SchemaError) as exc_info:
        Net(text)
    result = [f"{p.layer}: {p.message}" for p in exc_info.value.problems]
    assert len(result) == len(expected_lines)
    assert all(line in problem for line, problem in zip(expected_lines, result, strict=True)), result


def test_a_solver_reports_all_problems_of_its_net(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(MISSPELT)
    (tmp_path / "solver.prototxt").write_text(f'net: "{tmp_path / "net.prototxt"}" base_lr: 1 lr_policy: "fixed"')
    with pytest.raises(SchemaError, match=r"(?s)layer .conv.*num_output.*layer .big.*the kernel"):
        Solver(tmp_path / "solver.prototxt")


def test_a_net_with_an_impossible_file_name_is_reported_as_missing() -> None:
    with pytest.raises(SchemaError, match="no such file"):
        Solver(f'net: "{"a" * 5000}" base_lr: 1 lr_policy: "fixed" # {{')


def test_shape_problems_of_independent_layers_are_reported_together() -> None:
    text = """
    layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
    layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
            convolution_param { num_output: 2 kernel_size: 99 } }
    layer { name: "after" type: "ReLU" bottom: "conv" top: "after" }
    layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" }
    """
    with pytest.raises(CaffejaxError) as exc_info:
        Net(text)
    assert [p.layer for p in exc_info.value.problems] == ["conv", "pool"]
    assert "(8, 8)" in exc_info.value.problems[0].message


POOL = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 6 dim: 6 } } }
layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param { kernel_size: 3 stride: 2 %s } }
"""


def test_fork_settings_are_supported_or_rejected() -> None:
    assert Net(POOL % "").graph.blobs["pool"].shape == (1, 1, 3, 3)
    assert Net(POOL % "ceil_mode: false").graph.blobs["pool"].shape == (1, 1, 2, 2)
    with pytest.raises(
        CaffejaxError, match=r"layer 'pool' \(Pooling\): setting pooling_param\.torch_pooling \(of nvidia\)"
    ):
        Net(POOL % "torch_pooling: true")
    Net(POOL % "torch_pooling: false")  # the default changes nothing


def test_euclidean_loss_of_clips_needs_equal_shapes() -> None:
    text = """layer { name: "in" type: "Input" top: "x" top: "truth"
        input_param { shape { dim: 2 dim: 1 dim: 3 dim: 4 dim: 5 } shape { dim: 2 } } }
      layer { name: "loss" type: "EuclideanLoss" bottom: "x" bottom: "truth" top: "loss" }"""
    with pytest.raises(GraphError, match=r"bottom 1 must have shape \(2, 1, 3, 4, 5\), not \(2,\)"):
        Net(text, "TRAIN")
