"""Upgrades of old files, compared with the results of Caffe's tools."""

import json
import zipfile
from pathlib import Path

import pytest

from caffejax.base.errors import SchemaError
from caffejax.base.glog import collect_warnings
from caffejax.core.schema import caffe_pb2, format_text, parse_text, read_net, read_solver, upgrade_net

NETS = Path(__file__).resolve().parents[2] / "golden" / "nets"


@pytest.mark.parametrize("upgraded_path", sorted(NETS.glob("*.upgraded.prototxt")), ids=lambda path: path.name)
def test_upgrades_equal_those_of_caffes_tools(upgraded_path):
    read, message_class = read_net, caffe_pb2.NetParameter
    if upgraded_path.name.startswith("solver"):
        read, message_class = read_solver, caffe_pb2.SolverParameter
    source = upgraded_path.with_name(upgraded_path.name.replace(".upgraded", ""))
    assert read(source) == parse_text(upgraded_path.read_text(), message_class)
    assert read(upgraded_path) == read(source)


RECORDED = sorted(path for path in NETS.glob("*.json") if "upgrade" in json.loads(path.read_text()))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_warnings_and_errors_are_the_same_as_in_caffe(path):
    recorded = json.loads(path.read_text())["upgrade"]
    source = path.with_suffix(".prototxt")
    if recorded["file"] is None:
        with pytest.raises(SchemaError, match=f"{source.name}: .*'layer' .*'layers' "):
            read_net(source)
        return
    with collect_warnings() as warnings:
        for _ in range(2):  # the second time it is silent
            read_net(source)
    expected_warnings = [message for message in recorded["messages"] if not message.startswith("File already")]
    is_v1 = "layers" in source.read_text()  # Caffe says this only on the tool's log
    assert bool(warnings) == bool(expected_warnings or is_v1)
    assert len(set(warnings)) == len(warnings)
    assert "\n" not in "".join(warnings)


def test_fields_without_effect_cause_warnings():
    net = parse_text((NETS / "v0_bad_field.prototxt").read_text(), caffe_pb2.NetParameter)
    warnings = [w for w in upgrade_net(net) if "has no effect" in w]
    assert warnings == [
        "layer 'r': num_output has no effect on type 'relu' and is dropped",
        "layer 'r': kernelsize has no effect on type 'relu' and is dropped",
    ]


def test_solver_with_both_types_is_refused():
    with pytest.raises(SchemaError, match="both type"):
        read_solver(NETS / "solver_type_both.prototxt")


def test_nets_inside_a_solver_are_upgraded():
    v1 = 'layers { name: "r" type: RELU bottom: "a" top: "a" }'
    solver = read_solver(f"net_param {{ {v1} }} train_net_param {{ {v1} }} test_net_param {{ {v1} }}\n")
    for net in (solver.net_param, solver.train_net_param, *solver.test_net_param):
        assert [layer.type for layer in net.layer] == ["ReLU"]


PADDING = """
    input: "x" input_dim: 1 input_dim: 1 input_dim: 4 input_dim: 4 debug_info: true
    layers { bottom: "x" top: "p" layer { name: "p" type: "padding" pad: 2 } }
    layers { bottom: "p" top: "y" layer { name: "y" type: "%s" kernelsize: 3 } }
"""


def test_padding_layers_are_merged_into_the_next_layer():
    net = read_net(PADDING % "conv")
    assert [layer.name for layer in net.layer] == ["input", "y"]
    assert (list(net.layer[1].bottom), list(net.layer[1].convolution_param.pad)) == (["x"], [2])
    assert not net.HasField("debug_info")
    assert read_net(PADDING % "pool").layer[1].pooling_param.pad == 2
    with pytest.raises(SchemaError, match="only conv and pool"):
        read_net(PADDING % "relu")


def test_a_v1_layer_beside_v0_layers_keeps_only_its_blob_names():
    """Caffe upgrades all `layers` as V0 if one is (UpgradeV0LayerParameter), so other fields of V1 layers are lost."""
    net = parse_text(
        """
        layers { bottom: "x" top: "y" layer { name: "y" type: "conv" num_output: 2 } }
        layers { bottom: "y" top: "z" name: "z" type: POOLING blobs_lr: 1 pooling_param { kernel_size: 2 } }
        """,
        caffe_pb2.NetParameter,
    )
    warnings = upgrade_net(net)
    conv, upgraded_v1 = net.layer
    assert (conv.name, conv.type, conv.convolution_param.num_output) == ("y", "Convolution", 2)
    assert upgraded_v1 == caffe_pb2.LayerParameter(bottom=["y"], top=["z"])
    (warning,) = [w for w in warnings if "V1" in w]
    assert "layer 'z'" in warning
    assert "name, type, blobs_lr, pooling_param are dropped" in warning.replace("blobs_lr, type", "type, blobs_lr")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'layers { layer { name: "c" type: "cnov" } }',
            "layer 'c': there is no V0 layer type 'cnov'; did .* 'conv'",
        ),
        ('input: "a" input: "b" input_shape { dim: 1 }\n', r"2 inputs \(a, b\), but 1 input shape;"),
        ('input: "a" input_dim: 1 input_dim: 2\n', r"1 input \(a\), but 0 input shapes; .* four input_dim"),
    ],
)
def test_old_forms_without_a_meaning_are_refused(text, message):
    with pytest.raises(SchemaError, match=message):
        read_net(text)


FORK_TYPES = {"CROP": "Crop", "UNPOOLING": "UnPooling", "CONVOLUTION3D": "Convolution3D", "INTERP": "Interp"}


@pytest.mark.parametrize(("old", "new"), FORK_TYPES.items())
def test_enum_names_of_forks(old, new):
    assert read_net(f"layers {{ type: {old} }}").layer[0].type == new


def test_public_nets_are_upgraded(shared_folder):
    rejected_names = []
    with zipfile.ZipFile(shared_folder / "corpus" / "nets.zip") as nets:
        for name in nets.namelist():
            try:
                net = read_net(nets.read(name).decode(), name=name)
            except SchemaError:
                rejected_names.append(name)
                continue
            assert not [*net.layers, *net.input, *net.input_dim], name
            assert all(layer.type for layer in net.layer), name
            assert read_net(format_text(net) + "\n") == net, name
    assert len(rejected_names) == 3  # templates with placeholders for numbers
    assert all("template" in name for name in rejected_names)


def test_inactive_settings_of_mycaffe_are_dropped() -> None:
    net = read_net(
        """layer { name: d type: AnnotatedData top: d transform_param { color_order: RGB
          resize_param { option { active: True } height: 3 }
          distortion_param { option { active: True } active: True brightness_prob: 0.5 }
          expansion_param { option { active: False } prob: 0.5 }
          noise_param { active: False hist_eq: true } } }
        layer { name: o type: DetectionOutput bottom: d top: o detection_output_param { num_classes: 2
          nms_param { option { active: False } top_k: 3 }
          save_output_param { option { active: True } output_directory: x } } }"""
    )
    transform, output = net.layer[0].transform_param, net.layer[1].detection_output_param
    assert [field.name for field, _ in transform.ListFields()] == ["resize_param", "distort_param", "color_order"]
    assert [len(transform.resize_param), transform.resize_param[0].height] == [1, 3]
    assert [f.name for f, _ in transform.distort_param.ListFields()] == ["brightness_prob"]
    assert [field.name for field, _ in output.ListFields()] == ["num_classes", "save_output_param"]
    assert [f.name for f, _ in output.save_output_param.ListFields()] == ["output_directory"]


def test_mycaffes_value_for_an_unset_annotation_type_is_dropped() -> None:
    net = read_net("layer { name: d type: AnnotatedData top: d annotated_data_param { anno_type: -1 } }")
    assert not net.layer[0].annotated_data_param.HasField("anno_type")


@pytest.mark.parametrize(
    ("layer_type", "settings", "num_params", "num_remaining"),
    [
        ("Convolution", "convolution_param { bias_term: false }", 2, 1),
        ("InnerProduct", "inner_product_param { bias_term: false }", 2, 1),
        ("InnerProduct", "inner_product_param { bias_term: false }", 3, 3),
        ("InnerProduct", "inner_product_param { bias_term: false enable_noise: true }", 2, 2),
        ("InnerProduct", "inner_product_param { bias_term: true }", 2, 2),
        ("Scale", "scale_param { bias_term: false }", 2, 2),
    ],
)
def test_params_of_missing_biases_are_dropped_as_in_mycaffe(
    layer_type: str, settings: str, num_params: int, num_remaining: int
) -> None:
    params = "param { lr_mult: 3 } " + "param { } " * (num_params - 1)
    with collect_warnings() as warnings:
        net = read_net(f'layer {{ name: "x" type: "{layer_type}" bottom: "b" top: "x" {params} {settings} }}')
    assert (len(net.layer[0].param), net.layer[0].param[0].lr_mult) == (num_remaining, 3)
    assert ["second param of a layer without bias" in warning for warning in warnings] == [True] * (
        num_params - num_remaining
    )


@pytest.mark.parametrize(
    ("layer_type", "fork_settings", "settings"),
    [
        ("Convolution", "convolution_param { hole: 2 }", "convolution_param { dilation: 2 }"),
        ("Im2col", "convolution_param { hole_h: 2 hole_w: 1 }", "convolution_param { dilation: 2 dilation: 1 }"),
        (
            "Deconvolution",
            "convolution_param { dilation_w: 3 dilation_h: 2 }",
            "convolution_param { dilation: [2, 3] }",
        ),
        ("Pooling", "pooling_param { ceil_mode: false }", "pooling_param { round_mode: FLOOR }"),
        ("Pooling", "pooling_param { ceil_mode: true round_mode: FLOOR }", "pooling_param { round_mode: FLOOR }"),
        ("SoftmaxWithLoss", "softmaxloss_param { ignore_label: 3 }", "loss_param { ignore_label: 3 }"),
        ("Convolution3D", "convolution_param { hole: 2 }", "convolution_param { hole: 2 }"),
    ],
)
def test_settings_that_forks_name_otherwise_become_bvlcs(layer_type: str, fork_settings: str, settings: str) -> None:
    fork_net, net = (read_net(f'layer {{ type: "{layer_type}" {s} }}') for s in (fork_settings, settings))
    assert fork_net == net


def test_all_settings_without_another_name_are_reported() -> None:
    with pytest.raises(SchemaError) as exc_info:
        read_net(
            """layer { name: "a" type: "Convolution" convolution_param { hole: 2 dilation: 2 } }
            layer { name: "b" type: "Convolution" convolution_param { dilation_w: 2 } }
            layer { name: "c" type: "Convolution" convolution_param { hole: 2 hole_h: 2 hole_w: 2 } }
            layer { name: "d" type: "SoftmaxWithLoss" softmaxloss_param { ignore_label: 3 ignore_label: 4 } }"""
        )
    assert [(p.layer, p.layer_type, p.message) for p in exc_info.value.problems] == [
        ("a", "Convolution", "hole and dilation mean the same; set only one of them"),
        ("b", "Convolution", "set both of dilation_h and dilation_w"),
        ("c", "Convolution", "hole and hole_h mean the same; set only one of them"),
        (
            "d",
            "SoftmaxWithLoss",
            "setting softmaxloss_param.ignore_label (of deeplab) is not supported, except a single ignore_label",
        ),
    ]
