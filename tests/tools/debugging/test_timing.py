"""Timing: each layer forward and backward, and the entire net, in the form of Caffe's table."""

import json
import re
from pathlib import Path

import jax
import pytest

from caffejax import Net
from caffejax.cli import main
from caffejax.tools.debugging import LayerTime, Timer, average_times

DIGITS = Path(__file__).parents[3] / "configs" / "digits" / "lenet_train_test.prototxt"
NET_WITH_INPUTS = """
layer { name: "in" type: "Input" top: "x" top: "label"
        input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "drop" type: "Dropout" bottom: "ip" top: "ip" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


@pytest.mark.parametrize(("net", "phase"), [(DIGITS, "TRAIN"), (NET_WITH_INPUTS, "TRAIN"), (NET_WITH_INPUTS, "TEST")])
def test_every_layer_and_the_net_have_times(net, phase):
    net = Net(net, phase)
    timer = Timer(net, net.init(jax.random.key(0)), jax.random.key(1))
    times = timer.time_layers()
    assert [t.name for t in times] == [layer.name for layer in net.graph.layers]
    for layer, layer_time in zip(net.graph.layers, times, strict=True):
        assert (layer_time.forward > 0) == (layer.type.name != "Input")
        assert (layer_time.backward > 0) == layer.need_backward
    net_time = timer.time_net()
    assert net_time.forward > 0
    assert net_time.both > 0
    assert (net_time.frozen is not None) == (phase == "TEST")
    timer.close()


def test_a_net_without_loss_has_backward_times_too():
    deploy = (
        NET_WITH_INPUTS[: NET_WITH_INPUTS.index('layer { name: "loss"')]
        .replace('top: "label"', "")
        .replace("shape { dim: 4 }", "")
    )
    net = Net(deploy, "TEST")
    timer = Timer(net, net.init(jax.random.key(0)), jax.random.key(1))
    assert [t.name for t in timer.time_layers() if t.backward > 0] == ["ip", "drop"]
    net_time = timer.time_net()
    assert net_time.both > 0
    timer.close()


def test_average_times_are_means_over_passes():
    passes = [[LayerTime("a", 1, 4), LayerTime("b", 2, 0)], [LayerTime("a", 3, 0), LayerTime("b", 4, 2)]]
    assert list(average_times(passes)) == [LayerTime("a", 2, 2), LayerTime("b", 3, 1)]


def test_the_command_prints_caffes_table(capsys):
    assert main(["time", str(DIGITS), "--iterations=2", "--device=cpu", "--json"]) == 0
    out, err = capsys.readouterr()
    lines = [line.split("] ", 1)[1] for line in err.splitlines() if "] " in line]
    rows = [m.groups() for line in lines if (m := re.fullmatch(r" *(\w+)\t(forward|backward): ([\d.e-]+) ms\.", line))]
    names = [layer.name for layer in Net(DIGITS, "TRAIN").graph.layers]
    assert [row[:2] for row in rows] == [(n, direction) for n in names for direction in ("forward", "backward")]
    sums = {m[1]: float(m[2]) for line in lines if (m := re.fullmatch(r"Average (.*): ([\d.e+]+) ms\.", line))}
    assert sums["Forward-Backward"] == pytest.approx(sums["Forward pass"] + sums["Backward pass"], rel=1e-3)
    assert sums.keys() >= {"fused Forward pass", "fused Forward-Backward"}
    assert sum(line.startswith("Iteration: ") for line in lines) == 2
    schedule_lines = lines[lines.index("Compiled as one program, which training and testing run:") + 1 :]
    assert schedule_lines[0] == "  compiled: mnist .. loss"
    result = json.loads(out)
    assert (result["iterations"], [layer["name"] for layer in result["layers"]]) == (2, names)
    logged_times = [float(time) for *_, time in rows]
    assert [layer[direction] for layer in result["layers"] for direction in ("forward", "backward")] == pytest.approx(
        logged_times, rel=1e-4
    )
    assert result["whole"]["both"] == pytest.approx(sums["fused Forward-Backward"], rel=1e-4)
    assert result["whole"]["frozen"] is None


def test_devices_are_listed(capsys):
    assert main(["device_query", "--json"]) == 0
    out, err = capsys.readouterr()
    assert re.search(r"Device id: +cpu:0\n", err)
    assert [device["Device id"] for device in json.loads(out)] == [f"cpu:{d.id}" for d in jax.devices("cpu")]
    assert main(["device_query", "--gpu=77"]) == 1
    assert "gpu" in capsys.readouterr().err
