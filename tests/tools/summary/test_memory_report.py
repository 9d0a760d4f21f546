"""Memory reports of known nets, compared with sums by hand, and the command."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from caffejax import GraphError, Net
from caffejax.cli import main
from caffejax.tools.summary import count_multiply_adds
from caffejax.tools.summary.memory_report import report_compiled_memory, report_memory

CONFIGS = Path(__file__).parents[3] / "configs"
DIGITS = CONFIGS / "digits" / "lenet_train_test.prototxt"
FILTER_NET = """layer { name: "in" type: "Input" top: "x" top: "s"
  input_param { shape { dim: 4 dim: 2 } shape { dim: 4 } } }
layer { name: "f" type: "Filter" bottom: "x" bottom: "s" top: "y" }"""


@pytest.mark.parametrize(
    ("name", "parameters", "multiply_adds"),
    [
        ("caffenet", 60_965_224, 724_406_816),
        ("squeezenet", 1_235_496, 387_747_520),
        ("googlenet", 6_998_552, 1_582_671_872),
        ("resnet50", 25_557_032 + 64 + 2 * 26_560 + 53, 3_857_973_248),  # a bias, and running statistics
    ],
)
def test_totals_of_published_nets_are_known(name: str, parameters: int, multiply_adds: int) -> None:
    total = report_memory(Net(CONFIGS / name / "train_val.prototxt", "TEST"), batch=1).total
    assert (total["parameters"], total["multiply_adds"]) == (parameters, multiply_adds)
    assert total["parameter_bytes"] == 4 * parameters


def test_layers_have_the_counted_sizes() -> None:
    layers = {
        layer.name: layer for layer in report_memory(Net(CONFIGS / "lenet" / "train_val.prototxt", "TRAIN")).layers
    }
    conv2 = layers["conv2"]
    assert (conv2.type, conv2.top_shapes) == ("Convolution", ((64, 50, 8, 8),))
    assert (conv2.parameters, conv2.parameter_bytes) == (25_050, 100_200)
    assert (conv2.activations, conv2.activation_bytes) == (204_800, 819_200)
    assert conv2.multiply_adds == 64 * 50 * 64 * 20 * 25
    assert layers["relu1"].activations == layers["pool1"].multiply_adds == layers["data"].multiply_adds == 0


@pytest.mark.parametrize(
    ("layer", "multiply_adds"),
    [
        ('type: "Deconvolution" convolution_param { num_output: 4 kernel_size: 3 stride: 2 }', 2 * 6 * 25 * 4 * 9),
        ('type: "Convolution" convolution_param { num_output: 4 kernel_size: 3 group: 2 }', 2 * 4 * 9 * 3 * 9),
        ('type: "InnerProduct" inner_product_param { num_output: 7 }', 2 * 150 * 7),
        ('type: "Pooling" pooling_param { kernel_size: 2 }', 0),
    ],
)
def test_multiply_adds_of_layers_are_counted(layer: str, multiply_adds: int) -> None:
    net = f"""layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ dim: 2 dim: 6 dim: 5 dim: 5 }} }} }}
    layer {{ name: "l" bottom: "x" top: "y" {layer} }}"""
    assert report_memory(Net(net)).layers[1].multiply_adds == multiply_adds


def test_multiply_adds_in_loops_and_branches_are_counted() -> None:
    x = jnp.ones((3, 3))
    assert count_multiply_adds(lambda x: jax.lax.scan(lambda c, _: (c @ x, None), x, None, length=5)[0], x) == 5 * 27
    assert (
        count_multiply_adds(lambda x: jax.lax.cond(x[0, 0] > 0, lambda x: x @ x @ x, lambda x: x @ x, x), x) == 2 * 27
    )
    assert count_multiply_adds(jax.jit(lambda x: x @ x[:, 0]), x) == 9


def test_recurrent_layers_count_every_step() -> None:
    net = """layer { name: "in" type: "Input" top: "x" top: "cont"
      input_param { shape { dim: 5 dim: 2 dim: 3 } shape { dim: 5 dim: 2 } } }
    layer { name: "l" type: "LSTM" bottom: "x" bottom: "cont" top: "y" recurrent_param { num_output: 4 } }"""
    assert report_memory(Net(net)).layers[1].multiply_adds == 5 * 2 * (3 * 16 + 4 * 16)


def test_host_layers_are_not_traced_for_state() -> None:
    result = report_memory(Net(FILTER_NET, "TRAIN"))
    assert result.layers[1].multiply_adds is None
    assert result.training is None
    with pytest.raises(GraphError, match=r"run on the host, so it is not compiled as one program \(compiled: "):
        report_compiled_memory(Net(FILTER_NET, "TRAIN"))


def test_the_command_prints_layers_and_totals(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["summary", "--memory", str(DIGITS), "--batch=256", "--remat=auto", "--memory_limit=1MB", "--compiled"])
        == 0
    )
    out = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line}
    assert rows["layer"][1:] == ["type", "tops", "parameters", "activations", "bytes", "multiply-adds"]
    assert rows["conv1"][:3] == ["conv1", "Convolution", "256x20x24x24"]
    assert rows["loss"][2] == "scalar"
    sums = [int(n.replace(",", "")) for n in rows["total"][1:]]
    assert sums[3] == 256 * 2_293_000
    assert re.search(r"Training, computing \d+ of \d+ layers in \d+ groups? twice: about [\d.]+ MiB", out)
    assert "more than the limit" in out
    assert re.search(r"XLA, loss and gradients: arguments .* results .* temporary [\d.]+ MiB", out)


def test_batches_that_do_not_fit_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(
        """layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 6 } } }
        layer { name: "r" type: "Reshape" bottom: "x" top: "y" reshape_param { shape { dim: 3 dim: 4 } } }"""
    )
    assert main(["summary", "--memory", str(tmp_path / "net.prototxt"), "--batch=5"]) == 1
    assert "layer 'r' (Reshape)" in capsys.readouterr().err
