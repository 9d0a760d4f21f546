"""Net summaries: receptive fields compared with gradients, layer families, the table, JSON, and the command."""

import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import Net, summarize
from caffejax.cli import main
from caffejax.tools.summary import FAMILIES

CONFIGS = Path(__file__).parents[3] / "configs"
LENET = CONFIGS / "lenet" / "train_val.prototxt"

CONV = 'type: "Convolution" convolution_param { num_output: 1 weight_filler { type: "constant" value: 1 } %s }'
POOL = 'type: "Pooling" pooling_param { pool: AVE %s }'
DECONV = 'type: "Deconvolution" convolution_param { num_output: 1 weight_filler { type: "constant" value: 1 } %s }'
POWER = 'type: "Power" power_param { scale: 2 }'


def make_stack(*layers: str) -> Net:
    """Return a net of consecutive layers on an input of 40 x 40."""
    text = 'layer { name: "0" type: "Input" top: "0" input_param { shape { dim: 1 dim: 1 dim: 40 dim: 40 } } }'
    for i, layer in enumerate(layers):
        text += f'layer {{ name: "{i + 1}" bottom: "{i}" top: "{i + 1}" {layer} }}'
    return Net(text)


def measure_receptive_field(net: Net, pixel: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first pixel and the size of the receptive field of the last top at (pixel, pixel)."""
    (name,) = net.outputs
    variables = net.init(jax.random.key(0))
    gradient = jax.grad(lambda x: net.apply(*variables, {"0": x})[0][name][0, 0, pixel, pixel])(
        jnp.ones((1, 1, 40, 40))
    )
    positions = np.argwhere(np.asarray(gradient)[0, 0])
    return positions.min(0), np.ptp(positions, axis=0) + 1


@pytest.mark.parametrize(
    "layers",
    [
        (CONV % "kernel_size: 3",),
        (CONV % "kernel_size: 3 stride: 2", CONV % "kernel_size: 5 pad: 2"),
        (CONV % "kernel_size: 3 dilation: 4", POWER, POOL % "kernel_size: 2 stride: 2", CONV % "kernel_size: 3"),
        (CONV % "kernel_h: 5 kernel_w: 1 stride_h: 1 stride_w: 3", POOL % "kernel_size: 3 stride: 2"),
        (DECONV % "kernel_size: 4 stride: 2", CONV % "kernel_size: 5"),
        (CONV % "kernel_size: 2 stride: 2", DECONV % "kernel_size: 2 stride: 2"),
        (CONV % "kernel_size: 4 stride: 4", DECONV % "kernel_size: 4 stride: 2 pad: 1", POWER),
    ],
)
def test_a_receptive_field_is_what_the_gradient_reaches(layers: tuple[str, ...]) -> None:
    """At some positions, deconvolutions depend on fewer pixels; the receptive field is the union over positions."""
    net = make_stack(*layers)
    last = summarize(net).layers[-1]
    center = min(last.top_shapes[0][2:]) // 2
    fields = [measure_receptive_field(net, pixel) for pixel in range(center - 2, center + 4)]
    largest = np.max([size for _, size in fields], axis=0)
    assert last.receptive_field is not None
    assert last.stride is not None
    is_exact = not any("Deconvolution" in layer for layer in layers)
    assert tuple(largest) == last.receptive_field if is_exact else np.all(largest <= last.receptive_field)
    assert np.all(np.array(last.receptive_field) - largest <= 2)
    num_steps = min(len(fields) - 1, 4)
    measured_stride = (fields[num_steps][0] - fields[0][0]) / num_steps
    np.testing.assert_allclose(measured_stride, last.stride, atol=0.5)


NORM = 'type: "Normalize" norm_param { across_spatial: %s }'
PERMUTE = 'type: "Permute" permute_param { order: 0 order: 1 order: %d order: %d }'


@pytest.mark.parametrize(
    ("layer", "field"),
    [
        ('type: "LRN" lrn_param { norm_region: WITHIN_CHANNEL local_size: 5 }', (7, 5)),
        ('type: "LRN" lrn_param { local_size: 5 }', (3, 1)),
        ('type: "MVN"', None),
        ('type: "SpatialSoftmax"', None),
        ('type: "Softmax"', (3, 1)),
        ('type: "Softmax" softmax_param { axis: -1 }', None),
        ('type: "ArgMax" argmax_param { axis: 1 }', (3, 1)),
        ('type: "ArgMax" argmax_param { axis: 2 top_k: 8 }', None),
        (NORM % "true", None),
        (NORM % "false", (3, 1)),
        (PERMUTE % (2, 3), (3, 1)),
        (PERMUTE % (3, 2), None),
        ('type: "InnerProduct" inner_product_param { num_output: 8 axis: 3 }', None),
        ('type: "Concat"', (3, 1)),
    ],
)
def test_layers_that_keep_the_shape_may_enlarge_the_receptive_field(layer: str, field: tuple[int, int] | None) -> None:
    net = Net(
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 dim: 8 dim: 8 } } } '
        'layer { name: "c" type: "Convolution" bottom: "x" top: "c" '
        "convolution_param { num_output: 2 kernel_h: 3 kernel_w: 1 pad_h: 1 } } "
        f'layer {{ name: "y" bottom: "c" top: "y" {layer} }}'
    )
    assert summarize(net).layers[-1].receptive_field == field


@pytest.mark.parametrize(
    ("name", "field", "stride"), [("pool5/7x7_s1", 907, 32), ("inception_3a/output", 59, 8), ("conv1/7x7_s2", 7, 2)]
)
def test_receptive_fields_of_googlenet(name: str, field: int, stride: int) -> None:
    layers = {x.name: x for x in summarize(Net(CONFIGS / "googlenet" / "train_val.prototxt")).layers}
    assert (layers[name].receptive_field, layers[name].stride) == ((field, field), (stride, stride))
    assert layers["loss3/classifier"].receptive_field is layers["prob"].receptive_field is None


FAMILIES_BY_LAYER = {
    'type: "Convolution" convolution_param { num_output: 4 kernel_size: 3 }': "convolution",
    'type: "Deconvolution" convolution_param { num_output: 4 kernel_size: 3 }': "convolution",
    'type: "InnerProduct" inner_product_param { num_output: 4 }': "product",
    'type: "BatchNorm"': "normalisation",
    'type: "Scale"': "normalisation",
    'type: "LRN"': "normalisation",
    'type: "MVN"': "normalisation",
    'type: "Normalize"': "normalisation",
    'type: "ReLU"': "activation",
    'type: "PReLU"': "activation",
    'type: "Dropout"': "activation",
    'type: "Power"': "activation",
    'type: "Pooling" pooling_param { kernel_size: 2 }': "pooling",
    'type: "Flatten"': "shape",
    'type: "Split"': "shape",
    'type: "Permute" permute_param { order: 1 }': "shape",
    'bottom: "0" type: "Concat"': "merge",
    'bottom: "0" type: "Eltwise"': "merge",
    'bottom: "0" type: "EuclideanLoss"': "loss",
    'type: "Reduction" loss_weight: 1': "loss",
    'type: "Softmax"': "other",
}


@pytest.mark.parametrize(("layer", "family"), FAMILIES_BY_LAYER.items())
def test_each_type_has_its_family(layer: str, family: str) -> None:
    first, second = summarize(make_stack(layer)).layers
    assert family in FAMILIES
    assert (first.family, second.family) == ("data", family)


def test_the_table_and_json_are_equal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(LENET), "--batch=1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "layer",
        "type",
        "tops",
        "parameters",
        "multiply-adds",
        "activations",
        "field",
        "stride",
    ]
    assert main(["summary", str(LENET), "--batch=1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [line.split()[0] for line in lines[1:-2]] == [layer["name"] for layer in result["layers"]]
    (conv2,) = (layer for layer in result["layers"] if layer["name"] == "conv2")
    assert conv2["multiply_adds"] == 50 * 8 * 8 * 20 * 25
    assert conv2["param_shapes"] == [[50, 20, 5, 5], [50]]
    assert (conv2["receptive_field"], conv2["stride"]) == ([14, 14], [2, 2])
    parameters = sum(layer["parameters"] for layer in result["layers"])
    assert result["total"]["parameters"] == parameters
    assert f"{parameters:,} parameters" in lines[-1]


def test_a_summary_is_a_table_in_python_and_notebooks() -> None:
    summary = summarize(Net('layer { name: "<b>\\033[2J" type: "Input" top: "x" input_param { shape { dim: 2 } } }'))
    assert repr(summary) == str(summary)
    assert "\x1b" not in str(summary)
    assert "<b>" not in summary._repr_html_()
    assert re.search("&lt;b&gt;.*Input", summary._repr_html_())


def test_host_layers_are_reported_as_not_counted() -> None:
    net = Net("""layer { name: "in" type: "Input" top: "x" top: "s"
        input_param { shape { dim: 4 dim: 2 } shape { dim: 4 } } }
      layer { name: "f" type: "Filter" bottom: "x" bottom: "s" top: "y" }""")
    assert summarize(net).layers[1].multiply_adds is None
    assert "(without 1 on the host)" in str(summarize(net))


def test_invalid_nets_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text('layer { name: "c" type: "Convolutoin" bottom: "x" top: "y" }')
    assert main(["summary", str(tmp_path / "net.prototxt")]) == 1
    assert "did you mean 'Convolution'" in capsys.readouterr().err


def test_large_sizes_are_exact_and_the_name_cannot_move_the_cursor() -> None:
    shape = "input_param { shape { dim: 1 dim: 1234567 } }"
    table = str(summarize(Net(f'name: "a\\033[31m" layer {{ name: "d" type: "Input" top: "d" {shape} }}')))
    assert "1x1234567" in table
    assert "\033" not in table


def test_databases_may_be_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = tmp_path / "net.prototxt"
    net.write_text(
        'layer { name: "d" type: "Data" top: "x" top: "label" data_param { source: "nowhere" batch_size: 4 }'
        " transform_param { crop_size: 24 } }\n"
        'layer { name: "c" type: "Convolution" bottom: "x" top: "c"\n'
        "  convolution_param { num_output: 8 kernel_size: 5 } }\n"
        'layer { name: "a" type: "ReLU" bottom: "c" top: "a" } layer { name: "b" type: "TanH" bottom: "c" top: "b" }'
    )
    assert main(["summary", str(net), "--batch=2", "--json"]) == 0
    output = capsys.readouterr()
    assert (
        "the source of layer 'd' (Data) is absent and was not opened; its tops are assumed to be 4x3x24x24"
        in output.err
    )
    result = json.loads(output.out)
    assert result["total"]["multiply_adds"] == 2 * 8 * 3 * 5 * 5 * 20 * 20
    assert [layer["bottoms"] for layer in result["layers"]] == [[], ["x"], ["c"], ["c"]]  # no names of Splits
    assert main(["summary", str(net)]) == 0
    assert "guess" not in capsys.readouterr().out
    net.write_text(net.read_text().replace("crop_size: 24", ""))
    assert main(["summary", str(net)]) == 0
    assert "follow from a guessed image size" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize("extension", [".caffemodel", ".npz", ".caffemodel.h5"])
def test_the_blobs_of_a_weights_file_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], extension: str
) -> None:
    net = Net(
        """layer { name: "d" type: "Input" top: "d" input_param { shape { dim: 2 dim: 1234 } } }
        layer { name: "ip" type: "InnerProduct" bottom: "d" top: "ip" inner_product_param { num_output: 3 } }""",
        "TEST",
    )
    path = str(tmp_path / f"net{extension}")
    net.save(*net.init(jax.random.key(0)), path)
    assert main(["summary", path]) == 0
    names = ("weight", "bias") if extension == ".npz" else ("0", "1")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:3] == [["ip", names[0], "3x1234", "3,702"], ["ip", names[1], "3", "3"]]
    assert " ".join(lines[-1]) == "1 layer with 2 blobs, 3,705 numbers"
    assert main(["summary", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == {
        "layer": "ip",
        "blob": "weight" if extension == ".npz" else 0,
        "shape": [3, 1234],
    }
    assert main(["summary", str(tmp_path / f"absent{extension}")]) == 1
    assert "no such file" in capsys.readouterr().err
