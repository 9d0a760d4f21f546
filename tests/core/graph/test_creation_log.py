"""The lines that Caffe logs when it creates a net; the expected numbers are from Caffe's logs of LeNet."""

from pathlib import Path

import pytest

from caffejax import Net
from caffejax.core.graph.caffe_log import format_creation_lines
from caffejax.core.schema import read_net

LENET = Path(__file__).parents[3] / "configs" / "digits" / "lenet_train_test.prototxt"
CUSTOM = """name: "own"
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 4 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" }
layer { name: "free" type: "Power" bottom: "x" top: "y" }
layer { name: "loss" type: "Reduction" bottom: "ip" top: "sum" loss_weight: 2 }
"""


def get_lines(net: Net) -> list[str]:
    return list(format_creation_lines(net.graph))


@pytest.mark.parametrize(("phase", "batch", "memory"), [("TRAIN", 64, 5169924), ("TEST", 100, 8086808)])
def test_memory_of_lenet(phase, batch, memory):
    definition = read_net(LENET)
    for layer in definition.layer:
        if layer.type == "Data":
            layer.data_param.batch_size = batch
    lines = get_lines(Net(definition, phase, file=LENET))
    assert [line for line in lines if line.startswith("Memory")][-1] == f"Memory required for data: {memory}"
    assert lines.count(f"Top shape: {batch} 20 24 24 ({batch * 20 * 24 * 24})") == 1
    assert lines[-1] == "Network initialization done."


def test_creation_lines_of_a_net():
    text, *lines = get_lines(Net(CUSTOM, "TRAIN"))
    first_line, _, definition = text.partition("\n")
    assert first_line == "Initializing net from parameters: "
    graph = Net(CUSTOM, "TRAIN").graph
    assert get_lines(Net(definition, "TRAIN"))[1:] == lines  # the text is the net
    assert "_split" not in definition
    assert lines[: lines.index("Setting up ip") + 3] == [
        "Creating Layer in",
        "in -> x",
        "Setting up in",
        "Top shape: 4 3 (12)",
        "Memory required for data: 48",
        "Creating Layer x_in_0_split",
        "x_in_0_split <- x",
        "x_in_0_split -> x_in_0_split_0",
        "x_in_0_split -> x_in_0_split_1",
        "Setting up x_in_0_split",
        "Top shape: 4 3 (12)",
        "Top shape: 4 3 (12)",
        "Memory required for data: 144",
        "Creating Layer ip",
        "ip <- x_in_0_split_0",
        "ip -> ip",
        "Setting up ip",
        "Top shape: 4 2 (8)",
        "Memory required for data: 176",
    ]
    assert "relu -> ip (in-place)" in lines
    assert lines[lines.index("Setting up loss") + 1 :][:3] == [
        "Top shape: (1)",
        "    with loss weight 2",
        "Memory required for data: 260",
    ]
    assert [line for line in lines if "backward" in line] == [
        f"{layer.name} {'needs' if layer.name in ('ip', 'relu', 'loss') else 'does not need'} backward computation."
        for layer in reversed(graph.layers)
    ]
    assert lines[-3:] == [
        "This network produces output sum",
        "This network produces output y",
        "Network initialization done.",
    ]
