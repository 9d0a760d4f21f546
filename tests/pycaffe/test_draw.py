"""Drawing nets: labels, the DOT text, SVG, and Graphviz if it is installed."""

import asyncio
import builtins
import json
import re
import stat
import sys
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import caffejax.pycaffe as caffe
from caffejax.base.errors import CaffejaxError
from caffejax.core.layers import declare, register_temporarily
from caffejax.core.schema import caffe_pb2, parse_text, read_net
from caffejax.pycaffe import draw
from caffejax.tools.view import svg_drawing
from caffejax.tools.view.draw_style import DRAW_STYLES, DrawStyle

REPOSITORY = Path(__file__).parents[2]
CORPUS = REPOSITORY.parent / "shared" / "corpus"
LENET = REPOSITORY / "configs" / "digits" / "lenet_train_test.prototxt"


def parse_layer(text: str) -> caffe_pb2.LayerParameter:
    return parse_text(text, caffe_pb2.LayerParameter)


@pytest.fixture
def no_graphviz(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


CONV = 'name: "c" type: "Convolution" convolution_param { num_output: 7 kernel_size: 3 pad: 1 }'


@pytest.mark.parametrize(
    ("text", "label", "edge"),
    [
        (CONV, "c|(Convolution)|kernel size: 3|stride: 1|pad: 1", "7"),
        (
            'name: "d" type: "Deconvolution" convolution_param { num_output: 2 kernel_h: 3 kernel_w: 5 stride: 2 }',
            "d|(Deconvolution)|kernel size: 3x5|stride: 2|pad: 0",
            "2",
        ),
        (
            'name: "c" type: "Convolution" convolution_param { num_output: 2 kernel_size: [3, 3] stride: [1, 2] }',
            "c|(Convolution)|kernel size: 3|stride: 1x2|pad: 0",
            "2",
        ),
        (
            'name: "p" type: "Pooling" pooling_param { pool: AVE kernel_size: 2 stride: 2 }',
            "p|(Pooling AVE)|kernel size: 2|stride: 2|pad: 0",
            "",
        ),
        (
            'name: "p" type: "Pooling" pooling_param { global_pooling: true }',
            "p|(Pooling MAX)|global|stride: 1|pad: 0",
            "",
        ),
        ('name: "i" type: "InnerProduct" inner_product_param { num_output: 9 }', "i|(InnerProduct)", "9"),
        ('name: "m" type: "Data" data_param { batch_size: 64 }', "m|(Data)", "Batch 64"),
        ('name: "r" type: "ReLU"', "r|(ReLU)", ""),
    ],
)
def test_labels_have_the_settings_of_a_layer(text: str, label: str, edge: str) -> None:
    assert draw.get_layer_label(parse_layer(text), "LR") == label.replace("|", "\n")
    assert draw.get_layer_label(parse_layer(text), "TB") == label.replace("|", " ")
    assert draw.get_edge_label(parse_layer(text)) == edge


@pytest.mark.parametrize(
    ("params", "expected"),
    [("", (1, 1)), ("param { lr_mult: 3 }", (3, 1)), ("param { lr_mult: 0 } param { lr_mult: 2 }", (0, 2))],
)
def test_learning_rates(params: str, expected: tuple[float, float]) -> None:
    layer = parse_layer(CONV + params)
    assert draw.get_layer_lr_mult(layer) == expected
    text = "lr mult: {:.1f}, {:.1f}".format(*expected)
    assert draw.get_layer_label(layer, "LR", display_lrm=True).endswith(f"\n{text}")


def test_layers_without_learning_rates() -> None:
    with pytest.raises(ValueError, match="ReLU layers do not have a learning rate"):
        draw.get_layer_lr_mult(parse_layer('name: "r" type: "ReLU"'))
    with pytest.raises(ValueError, match="has 3 param entries"):
        draw.get_layer_lr_mult(parse_layer(CONV + "param {} param {} param {}"))


def test_registered_types_may_have_a_style(monkeypatch: pytest.MonkeyPatch) -> None:
    style = DrawStyle(
        "#123456", lambda layer: "large", lambda layer: ["width: 3"], lambda layer: f"to {layer.top[0]}", lr_mult=True
    )
    layer_type = declare("Mine")(lambda x: x)
    monkeypatch.setitem(DRAW_STYLES, "Mine", style)
    layer = parse_layer('name: "m" type: "Mine" top: "y" param { lr_mult: 3 }')
    with register_temporarily(layer_type):
        assert draw.get_layer_label(layer, "TB", display_lrm=True) == "m (Mine large) width: 3 lr mult: 3.0, 1.0"
        assert draw.get_edge_label(layer) == "to y"
        assert draw.choose_color_by_layertype("Mine") == "#123456"


def test_colors_and_pooling_types() -> None:
    layer_types = ("Convolution", "Deconvolution", "Pooling", "InnerProduct", "ReLU")
    assert len({draw.choose_color_by_layertype(layer_type) for layer_type in layer_types}) == 4
    types = draw.get_pooling_types_dict()
    assert [types[number] for number in range(3)] == ["MAX", "AVE", "STOCHASTIC"]


NET = """
name: "a \\"net\\""
layer { name: "in" type: "Input" top: "x" }
layer { name: "train" type: "Power" bottom: "x" top: "y" include { phase: TRAIN } }
layer { name: "test<1|2>" type: "Exp" bottom: "x" top: "y" include { phase: TEST } }
layer { name: "relu" type: "ReLU" bottom: "y" top: "y" }
layer { name: "late" type: "Power" bottom: "y" top: "z" exclude { phase: TRAIN } }
"""


def test_a_drawing_has_layers_blobs_and_edges() -> None:
    picture = draw.drawing(read_net(NET))
    assert [label.split("\n")[0] for label, _ in picture.nodes.values()] == [
        *("in", "x", "train", "y", "test<1|2>", "relu", "late", "z")
    ]
    assert picture.nodes["relu_ReLU"][1]["fillcolor"] == draw.NEURON_LAYER_STYLE["fillcolor"]
    assert [(a, b) for a, b, _ in picture.edges] == [
        ("in_Input", "x_blob"),
        *(("x_blob", "train_Power"), ("train_Power", "y_blob")),
        *(("x_blob", "test<1|2>_Exp"), ("test<1|2>_Exp", "y_blob")),
        *(("y_blob", "relu_ReLU"), ("relu_ReLU", "y_blob")),
        *(("y_blob", "late_Power"), ("late_Power", "z_blob")),
    ]


@pytest.mark.parametrize(
    ("phase", "layers"),
    [
        (None, ["in", "train", "test<1|2>", "relu", "late"]),
        (caffe.TRAIN, ["in", "train", "relu"]),
        (caffe.TEST, ["in", "test<1|2>", "relu", "late"]),
    ],
)
def test_a_drawing_of_one_phase_shows_its_layers_alone(phase: int | None, layers: list[str]) -> None:
    nodes = draw.drawing(read_net(NET), phase=phase).nodes
    assert [label.split("\n")[0] for n, (label, _) in nodes.items() if not n.endswith("_blob")] == layers


def test_include_and_exclude_rules_together_are_rejected() -> None:
    net = parse_text(
        'layer { name: "r" type: "ReLU" include { phase: TRAIN } exclude { phase: TEST } }', caffe_pb2.NetParameter
    )
    with pytest.raises(ValueError, match="layer r has both include and exclude"):
        draw.draw_net(net, "LR", "dot", phase=caffe.TRAIN)


def test_layers_with_equal_names_are_separate_nodes() -> None:
    net = read_net(LENET)
    assert sum(n.startswith("mnist_Data") for n in draw.drawing(net).nodes) == 2
    assert sum(n.startswith("mnist_Data") for n in draw.drawing(net, phase=caffe.TEST).nodes) == 1


def find_strings(dot: str) -> list[str]:
    return [s.replace('\\"', '"').replace("\\\\", "\\") for s in re.findall(r'"((?:[^"\\]|\\.)*)"', dot)]


def test_dot_text_is_quoted() -> None:
    dot = draw.draw_net(read_net(NET), "BT", "dot").decode()
    assert dot.startswith('digraph "a \\"net\\"" {\nrankdir=BT;\n')
    assert "test\\<1\\|2\\> (Exp)" in find_strings(dot)
    assert dot.count("->") == 9
    assert re.sub(r'"((?:[^"\\]|\\.)*)"', "", dot).count("{") == 1


def parse_svg(svg: bytes) -> tuple[list[str], list[Any]]:
    """Return the texts and the boxes of the nodes."""
    root = ElementTree.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    boxes = [
        tuple(float(rect.get(key, "")) for key in ("x", "y", "width", "height"))
        for rect in root.iter(f"{space}rect")
        if rect.get("x")
    ]
    for polygon in root.iter(f"{space}polygon"):
        points = [tuple(map(float, p.split(","))) for p in polygon.get("points", "").split()]
        (left, top), (right, bottom) = (tuple(f(c) for c in zip(*points, strict=True)) for f in (min, max))
        boxes.append((left, top, right - left, bottom - top))
    return [text.text or "" for text in root.iter(f"{space}text")], boxes


@pytest.mark.usefixtures("no_graphviz")
@pytest.mark.parametrize("rankdir", ["LR", "RL", "TB", "BT"])
def test_svg_without_graphviz(rankdir: str) -> None:
    svg = draw.draw_net(read_net(LENET), rankdir, "svg", phase=caffe.TRAIN)
    texts, boxes = parse_svg(svg)
    assert any("conv1" in text for text in texts)
    assert "500" in texts
    assert len(boxes) == len(draw.drawing(read_net(LENET), phase=caffe.TRAIN).nodes)
    for i, (x1, y1, w1, h1) in enumerate(boxes):
        assert min(x1, y1) >= 0
        for x2, y2, w2, h2 in boxes[:i]:
            assert x1 + w1 <= x2 or x2 + w2 <= x1 or y1 + h1 <= y2 or y2 + h2 <= y1, "two nodes overlap"
    first, last = (next(b for b, t in zip(boxes, order, strict=False) if t) for order in ([1], [0] * 8 + [1]))
    axis = 0 if rankdir in ("LR", "RL") else 1
    assert (first[axis] < last[axis]) == (rankdir in ("LR", "TB"))


@pytest.mark.usefixtures("no_graphviz")
def test_names_are_escaped_in_svg() -> None:
    unsafe_names = ("<script>alert(1)</script>", "'&amp;", "a\\000b\\033[2J", "]]>", "x" * 500)
    net = "\n".join(f'layer {{ name: "{s}" type: "{s}" top: "{s}" }}' for s in unsafe_names)
    svg = draw.draw_net(read_net(net), "TB", "svg")
    texts, boxes = parse_svg(svg)
    assert len(boxes) == 2 * len(unsafe_names)
    assert {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(svg).iter()} == {
        *("svg", "title", "defs", "marker", "path", "rect", "polygon", "text")
    }
    assert "<script>alert(1)</script>" in texts
    assert "ab[2J" in texts


@pytest.mark.usefixtures("no_graphviz")
def test_svg_in_a_notebook() -> None:
    """In a notebook an event loop is running."""

    async def cell() -> bytes:
        return draw.draw_net(read_net(NET), "LR", "svg")

    assert asyncio.run(cell()) == draw.draw_net(read_net(NET), "LR", "svg")


@pytest.mark.usefixtures("no_graphviz")
def test_svg_asks_for_graphviz_or_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py_mini_racer", None)
    svg_drawing._get_engine.cache_clear()
    with pytest.raises(CaffejaxError, match=r"Graphviz.*mini-racer.*pip install mini-racer"):
        draw.draw_net(read_net(NET), "LR", "svg")


@pytest.mark.usefixtures("no_graphviz")
def test_nets_that_are_too_large_for_svg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svg_drawing, "_MAX_LAYOUT_SECONDS", 0.001)
    with pytest.raises(CaffejaxError, match=r"the net is too large to be laid out: its layout needs more than 0.001 s"):
        draw.draw_net(read_net(LENET), "LR", "svg")


@pytest.mark.usefixtures("no_graphviz")
def test_other_formats_need_graphviz(tmp_path: Path) -> None:
    target = tmp_path / "net.png"
    target.write_text("old")
    with pytest.raises(
        CaffejaxError, match=r"drawing to \.png needs Graphviz's program 'dot'.*not with pip.*\.svg or \.dot"
    ):
        draw.draw_net_to_file(read_net(NET), target)
    assert target.read_text() == "old"


@pytest.mark.usefixtures("no_graphviz")
def test_no_advice_to_write_svg_without_mini_racer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py_mini_racer", None)
    with pytest.raises(CaffejaxError, match=r"package manager \(not with pip\), or name the file \.dot$"):
        draw.draw_net_to_file(read_net(NET), tmp_path / "net.png")


def write_dot_program(folder: Path, script: str) -> None:
    file = folder / "dot"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def test_graphviz_gets_the_dot_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    write_dot_program(tmp_path, 'echo "$@"; cat')
    draw.draw_net_to_file(read_net(NET), tmp_path / "net.png", "TB")
    assert (tmp_path / "net.png").read_bytes() == b"-Tpng\n" + draw.draw_net(read_net(NET), "TB", "dot")
    write_dot_program(tmp_path, 'echo "no such format" >&2; exit 1')
    with pytest.raises(CaffejaxError, match=r"could not draw to \.xyz: no such format"):
        draw.draw_net(read_net(NET), "TB", "xyz")


def test_invalid_directions_and_formats_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(CaffejaxError, match="rankdir must be one of LR, RL, TB, BT, not 'XY'"):
        draw.draw_net(read_net(NET), "XY", "dot")
    with pytest.raises(CaffejaxError, match="the file's extension must be an image format"):
        draw.draw_net_to_file(read_net(NET), tmp_path / "net")


def test_get_pydot_graph_needs_pydot(monkeypatch: pytest.MonkeyPatch) -> None:
    original_import = builtins.__import__

    def import_without_pydot(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pydot":
            raise ImportError(name)
        return original_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", import_without_pydot)
    with pytest.raises(CaffejaxError, match="pip install pydot"):
        draw.get_pydot_graph(read_net(NET), "LR")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of its own parser
def test_pydot_reads_the_drawing() -> None:
    pytest.importorskip("pydot")
    graph = draw.get_pydot_graph(read_net(NET), "LR", phase=caffe.TEST)
    assert len(graph.get_edges()) == 7


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("no_graphviz")
@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"needs the corpus of public nets in {CORPUS}, which is absent")
def test_public_nets_can_be_drawn() -> None:
    index = json.loads((CORPUS / "index.json").read_text())
    names = [entry["file"] for entry in index if entry.get("golden") in ("full", "stripped")]  # others are templates
    assert len(names) > 100
    with zipfile.ZipFile(CORPUS / "nets.zip") as archive:
        for name in names[::8]:
            net = read_net(archive.read(name).decode())
            texts, boxes = parse_svg(draw.draw_net(net, "TB", "svg", display_lrm=False))
            picture = draw.drawing(net, "TB")
            assert len(boxes) == len(picture.nodes), name
            assert {label for label, _ in picture.nodes.values()} <= set(texts), name
            assert draw.draw_net(net, "LR", "dot").decode().count(" -> ") >= len(picture.edges), name
