"""Repeated blocks of nets, and boxes of in-place layers."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from view_nets import CONFIGS, DATA, find_config, make_conv, make_inception, make_irregular_net

from caffejax.core.graph import make_net_state
from caffejax.core.graph.resolve import is_included
from caffejax.core.schema import read_net
from caffejax.tools.view.layer_graph import DrawnLayer, connect_layers
from caffejax.tools.view.repeated_blocks import Block, Box, find_blocks, make_boxes


def load_layers(net: Path | str) -> tuple[DrawnLayer, ...]:
    message = read_net(net)
    state = make_net_state(message, "TRAIN")
    return connect_layers([layer for layer in message.layer if is_included(layer, state)])


def find_boxes_and_blocks(net: Path | str) -> tuple[tuple[Box, ...], tuple[Block, ...]]:
    boxes = make_boxes(load_layers(net))
    return boxes, find_blocks(boxes)


GOOGLENET = "conv2 inception_3a*2 inception_4a loss1 inception_4b inception_4c*2 loss2 inception_4e inception_5a*2"


@pytest.mark.parametrize(
    ("net", "expected"),
    [
        ("resnet50", "res2a res2b*2 res3a res3b*3 res4a res4b*5 res5a res5b*2"),
        ("se_resnet50", "conv2_1 conv2_2*2 conv3_1 conv3_2*3 conv4_1 conv4_2*5 conv5_1 conv5_2*2"),
        ("googlenet", GOOGLENET),
        ("densenet121", "concat_2_1*6 concat_3_1*12 concat_4_1*24 concat_5_1*16"),
        ("mobilenet", "conv2_1/sep*13"),
        ("squeezenet", "fire2*2 fire4*2 fire6*3 fire9/concat"),
        ("ssd300", "conv3_1*3 conv6*4 fc7_mbox*5"),
        ("lenet", ""),
        ("caffenet", ""),
    ],
)
def test_blocks_of_well_known_nets(net: str, expected: str) -> None:
    _, blocks = find_boxes_and_blocks(find_config(net))
    labels = [(b.parts[0].label + f"*{len(b.parts)}") if b.parts else b.label for b in blocks]
    assert " ".join(labels) == expected


@pytest.mark.parametrize("net", sorted(CONFIGS.glob("*/train*.prototxt")), ids=lambda path: path.parent.name)
def test_blocks_do_not_overlap_and_repetitions_are_equal(net: Path) -> None:
    boxes, blocks = find_boxes_and_blocks(net)
    assert all(a.stop <= b.start for a, b in pairwise(blocks))
    for block in blocks:
        assert 0 <= block.start < block.stop <= len(boxes)
        ends = [block.start, *(part.stop for part in block.parts)]
        assert [part.start for part in block.parts] == ends[:-1]
        assert not block.parts or ends[-1] == block.stop
        types = [[x.layer.type for b in boxes[p.start : p.stop] for x in b.layers] for p in block.parts]
        assert all(t == types[0] for t in types)


def test_each_layer_is_in_one_box_below_the_layer_it_overwrites() -> None:
    layers = load_layers(find_config("resnet152"))
    boxes = make_boxes(layers)
    assert Counter(x.index for box in boxes for x in box.layers) == Counter(range(len(layers)))
    for box in boxes:
        first_layer, *in_place_layers = box.layers
        assert all(list(x.layer.top) == list(x.layer.bottom) == list(first_layer.layer.top) for x in in_place_layers)
    assert len(boxes) < len(layers) / 2


RELU = 'layer { name: "relu" type: "ReLU" bottom: "a" top: "a" }'


@pytest.mark.parametrize(
    ("net", "boxes"),
    [
        ([make_conv("a", "data"), RELU, make_conv("b", "a")], "data a+relu b"),
        ([make_conv("a", "data"), make_conv("b", "a"), RELU], "data a b relu"),  # b reads what relu overwrites
        (['layer { name: "s" type: "Slice" bottom: "data" top: "a" top: "b" }', RELU], "data s relu"),
        ([RELU], "data relu"),  # nothing makes its bottom
    ],
)
def test_in_place_layers_join_the_box_if_no_reader_comes_between(net: list[str], boxes: str) -> None:
    result = make_boxes(load_layers("\n".join([DATA, *net])))
    assert " ".join("+".join(x.layer.name for x in box.layers) for box in result) == boxes


def test_names_make_blocks_where_structure_does_not() -> None:
    net = [
        DATA,
        make_conv("in/a", "data"),
        make_conv("in/b", "in/a", "num_output: 2 kernel_size: 3"),
        make_conv("in/c", "in/b"),
    ]
    net += ['layer { name: "out/x" type: "ReLU" bottom: "in/c" top: "x" }', make_conv("out/y", "x")]
    net += ['layer { name: "out/z" type: "TanH" bottom: "out/y" top: "z" }']
    _, blocks = find_boxes_and_blocks("\n".join(net))
    assert [b.label for b in blocks] == ["in", "out"]


def test_blocks_of_a_thousand_layers_are_found() -> None:
    boxes, blocks = find_boxes_and_blocks(make_inception(70))
    assert len(boxes) > 500
    assert sum(b.stop - b.start for b in blocks) > 0.9 * len(boxes)
    assert len(find_boxes_and_blocks(make_irregular_net(1000))[0]) == 1000
    assert find_boxes_and_blocks("layer { }")[1] == ()
