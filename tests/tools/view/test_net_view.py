"""The content of pages about nets: numbers, problems and states."""

import json
from pathlib import Path
from typing import Any

import pytest
from view_nets import DATA, INVALID_NET, PROBLEMS, VALID_LAYERS, find_config, make_conv, make_hostile_net

from caffejax.base.errors import SchemaError
from caffejax.core.graph import build_graph, make_net_state
from caffejax.core.schema import caffe_pb2, parse_text, read_net
from caffejax.tools.summary import summarize
from caffejax.tools.view import load_view
from caffejax.tools.view.net_view import collect_problems, format_layer, to_json


def load_text_view(folder: Path, text: str) -> Any:
    file = folder / "net.prototxt"
    file.write_text(text)
    return load_view(file)


@pytest.mark.parametrize("net", ["googlenet", "lstm", "faster_rcnn_toy/test"])
@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_the_numbers_equal_the_summary(net: str, phase: Any) -> None:
    file = find_config("x").parents[1] / f"{net}.prototxt" if "/" in net else find_config(net)
    message = read_net(file)
    summary = summarize(build_graph(message, make_net_state(message, phase), file=str(file)))
    layers = to_json(load_view(file))["phases"][phase]["layers"]
    assert [layer["name"] for layer in layers] == [layer.name for layer in summary.layers]
    for layer, summary_layer in zip(layers, summary.layers, strict=True):
        keys = ("shapes", "paramShapes", "parameters", "multiplyAdds", "receptiveField", "stride", "family")
        assert [layer[f] for f in keys] == [
            *(
                summary_layer.top_shapes,
                summary_layer.param_shapes,
                summary_layer.parameters,
                summary_layer.multiply_adds,
            ),
            *(summary_layer.receptive_field, summary_layer.stride, summary_layer.family),
        ]


def test_the_view_of_an_invalid_net_has_all_problems_and_known_shapes(tmp_path: Path) -> None:
    view = load_text_view(tmp_path, INVALID_NET)
    net = json.loads(json.dumps(to_json(view)))
    problems_by_layer = {problem["layer"]: problem for problem in net["problems"]}
    assert problems_by_layer.keys() == PROBLEMS.keys()
    assert all(PROBLEMS[name] in problem["message"] for name, problem in problems_by_layer.items())
    assert problems_by_layer["conv1"]["line"] == 3
    assert problems_by_layer["conv1"]["phases"] == []
    assert problems_by_layer["relu"]["phases"] == ["TRAIN", "TEST"]
    assert {problem["file"] for problem in net["problems"]} == {str(tmp_path / "net.prototxt")}
    layers = net["phases"]["TEST"]["layers"]
    assert {layer["name"] for layer in layers if "shapes" in layer} == VALID_LAYERS
    assert len(layers) == 8
    assert not net["phases"]["TRAIN"]["builds"]


@pytest.mark.parametrize(
    ("text", "message", "layers"),
    [
        ("", "", 0),
        ('layer { name: "a" type: "ReLU" bottom: "x" top: "y"', "ends inside", 1),
        ("nonsense here", "no field 'nonsense'", 0),
        ('layer { name: "a" type: "ReLU" } layers { name: "b" type: RELU }', "both 'layer'", 1),
        ('layers { layer { name: "d" type: "nothing" } }', "nothing", 0),
        (f"{DATA} {make_conv('c', 'data')} {make_conv('c', 'data')}", "produced by multiple sources", 3),
        (f'{DATA} layer {{ name: "r" type: "ReLU" bottom: "r" top: "r" }}', "unknown bottom blob 'r'", 2),
    ],
)
def test_a_partly_readable_net_is_drawn_as_far_as_possible(
    tmp_path: Path, text: str, message: str, layers: int
) -> None:
    view = load_text_view(tmp_path, text)
    assert len(view.phases["TRAIN"].layers) == layers
    problems = [str(problem) for problem, _ in collect_problems(view)]
    assert any(message in problem for problem in problems) or not message
    to_json(view)


@pytest.mark.parametrize(
    ("content", "message"), [(None, "no such file"), (b"\0\1", "binary file"), ("folder", "this is a folder")]
)
def test_files_that_are_not_text_are_refused(tmp_path: Path, content: bytes | str | None, message: str) -> None:
    file = tmp_path if content == "folder" else tmp_path / "net.prototxt"
    if isinstance(content, bytes):
        file.write_bytes(content)
    with pytest.raises(SchemaError, match=message):
        load_view(file)


def test_missing_sources_and_phases_without_data_are_noted(tmp_path: Path) -> None:
    data = 'layer { name: "d" type: "Data" top: "d" include { phase: TRAIN } data_param { source: "no" batch_size: 3 } '
    view = load_text_view(tmp_path, f"{data} transform_param {{ crop_size: 9 }} }} {make_conv('c', 'd')}")
    train, test = view.phases["TRAIN"], view.phases["TEST"]
    assert train.summaries[1] is not None
    assert train.summaries[1].top_shapes == ((3, 8, 9, 9),)
    assert "is absent and was not opened" in train.notes[0]
    assert "no data layer" in test.notes[0]
    assert collect_problems(view) == []


def test_stages_choose_layers(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(
        f'{DATA} layer {{ name: "r" type: "ReLU" bottom: "data" top: "r" include {{ stage: "deep" }} }}'
    )
    counts = [len(load_view(tmp_path / "net.prototxt", stages=s).phases["TEST"].layers) for s in ([], ["deep"])]
    assert counts == [1, 2]


def test_the_prototxt_of_a_layer_has_no_weights() -> None:
    layer = parse_text('name: "c" type: "Convolution" top: "<c>" blobs { data: [1, 2] }', caffe_pb2.LayerParameter)
    text = format_layer(layer)
    assert "blobs: 1 array of weights" in text
    parsed_layer = read_net(text).layer[0]
    layer.ClearField("blobs")
    assert parsed_layer == layer
    layer.python_param.param_str = "x" * 50_000
    assert len(format_layer(layer)) < 21_000


def test_hostile_names_are_unchanged_in_the_view(tmp_path: Path) -> None:
    view = load_text_view(tmp_path, make_hostile_net())
    layers = to_json(view)["phases"]["TRAIN"]["layers"]
    assert [layer["name"] for layer in layers] == [layer.name for layer in view.net.layer]
