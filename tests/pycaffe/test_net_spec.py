"""NetSpec: the prototxt of its nets, building them, and errors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import caffejax
import caffejax.pycaffe as caffe
from caffejax.core.layers import layer_types
from caffejax.core.schema import caffe_pb2, format_text, parse_text
from caffejax.pycaffe import NetSpec, to_proto
from caffejax.pycaffe import layers as L
from caffejax.pycaffe import params as P
from caffejax.pycaffe.net_spec import Function, Top, assign_proto, param_name_dict


def make_dummy_data() -> Any:
    return L.DummyData(
        shape=[dict(dim=[8, 1, 28, 28]), dict(dim=[8])],
        data_filler=[dict(type="uniform", max=1), dict(type="constant")],
        ntop=2,
    )


def make_lenet() -> NetSpec:
    n = NetSpec()
    n.data, n.label = make_dummy_data()
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20, weight_filler=dict(type="xavier"))
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.conv2 = L.Convolution(n.pool1, kernel_size=5, num_output=50, weight_filler=dict(type="xavier"))
    n.pool2 = L.Pooling(n.conv2, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.ip1 = L.InnerProduct(n.pool2, num_output=500, weight_filler=dict(type="xavier"))
    n.relu1 = L.ReLU(n.ip1, in_place=True)
    n.ip2 = L.InnerProduct(n.relu1, num_output=10, weight_filler=dict(type="xavier"))
    n.loss = L.SoftmaxWithLoss(n.ip2, n.label)
    return n


def make_anonymous_lenet() -> caffe_pb2.NetParameter:
    data, label = make_dummy_data()
    conv1 = L.Convolution(data, kernel_size=5, num_output=20, weight_filler=dict(type="xavier"))
    pool1 = L.Pooling(conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    conv2 = L.Convolution(pool1, kernel_size=5, num_output=50, weight_filler=dict(type="xavier"))
    pool2 = L.Pooling(conv2, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    ip1 = L.InnerProduct(pool2, num_output=500, weight_filler=dict(type="xavier"))
    relu1 = L.ReLU(ip1, in_place=True)
    ip2 = L.InnerProduct(relu1, num_output=10, weight_filler=dict(type="xavier"))
    return to_proto(L.SoftmaxWithLoss(ip2, label))


def number_blobs(net: caffe_pb2.NetParameter) -> list[Any]:
    """Return a net's layers without names, with blobs replaced by numbers."""
    numbers: dict[str, int] = {}
    return [
        (
            layer.type,
            [numbers.setdefault(b, len(numbers)) for b in (*layer.bottom, *layer.top)],
            str(layer.convolution_param) + str(layer.pooling_param) + str(layer.inner_product_param),
        )
        for layer in net.layer
    ]


def test_named_and_anonymous_layers_build_the_same_net() -> None:
    named, anonymous = make_lenet().to_proto(), make_anonymous_lenet()
    assert number_blobs(named) == number_blobs(anonymous)
    for proto in (named, anonymous):
        net = caffejax.Net(proto, "TRAIN")
        assert [layer.type.name for layer in net.graph.layers][-3:] == ["ReLU", "InnerProduct", "SoftmaxWithLoss"]
        assert parse_text(format_text(proto), caffe_pb2.NetParameter) == proto


def test_names_are_those_of_the_attributes() -> None:
    net = make_lenet().to_proto()
    names = "data conv1 pool1 conv2 pool2 ip1 relu1 ip2 loss".split()
    assert [layer.name for layer in net.layer] == names
    assert [list(layer.top) for layer in net.layer] == [
        ["data", "label"],
        *([n] for n in ("conv1", "pool1", "conv2", "pool2", "ip1", "ip1", "ip2", "loss")),
    ]
    assert list(net.layer[7].bottom) == ["ip1"]


def test_automatic_names_count_per_type() -> None:
    net = make_anonymous_lenet()
    assert [layer.name for layer in net.layer] == [
        *("DummyData1", "Convolution1", "Pooling1", "Convolution2", "Pooling2"),
        *("InnerProduct1", "ReLU1", "InnerProduct2", "SoftmaxWithLoss1"),
    ]
    assert list(net.layer[0].top) == ["DummyData1", "DummyData2"]


def test_layers_without_a_name_are_added() -> None:
    n = NetSpec()
    n.data = L.Input(shape=dict(dim=[1, 2]))
    n.out = L.ReLU(L.Power(n.data, scale=2))
    net = n.to_proto()
    assert [(layer.name, *layer.bottom, *layer.top) for layer in net.layer] == [
        ("data", "data"),
        ("Power1", "data", "Power1"),
        ("out", "Power1", "out"),
    ]


def test_layers_without_tops_are_added_by_name() -> None:
    n = NetSpec()
    n.data, n.label = make_dummy_data()
    n.silence_data = L.Silence(n.data, ntop=0)
    n.silence_label = L.Silence(n.label, ntop=0)
    assert isinstance(n.silence_data, Function)
    net = n.to_proto()
    assert [(layer.name, list(layer.top)) for layer in net.layer[1:]] == [("silence_data", []), ("silence_label", [])]
    caffejax.Net(net, "TRAIN")
    anonymous = to_proto(L.Silence(n.data, ntop=0), L.Silence(n.label, ntop=0))
    assert [layer.name for layer in anonymous.layer] == ["DummyData1", "Silence1", "Silence2"]


@pytest.mark.parametrize("invalid_input", ["data", None, 3, ("a", "b")])
def test_inputs_that_are_not_tops_raise_an_error(invalid_input: object) -> None:
    with pytest.raises(TypeError) as exc_info:
        L.Convolution(invalid_input)
    assert (
        str(exc_info.value) == f"Convolution input 0 is not a Top (type is {type(invalid_input)})"
    )  # Caffe's words, no more


def test_a_tuple_instead_of_a_top_gets_a_hint(caplog: pytest.LogCaptureFixture) -> None:
    """The hint is logged, because scripts compare the message, and pytest's `match` includes notes."""
    with pytest.raises(TypeError, match=r"^Silence input 0 is not a Top \(type is <class 'tuple'>\)$"):
        L.Silence(make_dummy_data(), ntop=0)
    assert "a layer with several tops returns a tuple; pass one of its items" in caplog.text
    n = NetSpec()
    n.data = make_dummy_data()
    with pytest.raises(TypeError, match=r"^'data' is not a Top \(type is <class 'tuple'>\)$"):
        n.to_proto()
    assert "give each of the tops a name, as in n.a, n.b = ..." in caplog.text


SETTINGS: dict[str, tuple[Callable[[Top], Any], str]] = {
    "scalar for a repeated field": (
        lambda x: L.Convolution(x, kernel_size=3, num_output=2),
        'type: "Convolution" convolution_param { num_output: 2 kernel_size: 3 }',
    ),
    "list": (
        lambda x: L.Convolution(x, kernel_size=[3, 5], pad=(1, 2), dilation=np.array([1, 2])),
        'type: "Convolution" convolution_param { kernel_size: [3, 5] pad: [1, 2] dilation: [1, 2] }',
    ),
    "anything that can be looped over": (
        lambda x: L.Reshape(x, shape=dict(dim=range(3)), axis=np.int32(1)),
        'type: "Reshape" reshape_param { shape { dim: [0, 1, 2] } axis: 1 }',
    ),
    "enum by its name": (lambda x: L.Pooling(x, pool="AVE"), 'type: "Pooling" pooling_param { pool: AVE }'),
    "list of messages": (
        lambda x: L.Convolution(x, param=[dict(lr_mult=1, decay_mult=1), dict(lr_mult=2)]),
        'type: "Convolution" param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 }',
    ),
    "one message for several": (lambda x: L.Scale(x, param=dict(name="w")), 'type: "Scale" param { name: "w" }'),
    "nested": (
        lambda x: L.Scale(x, bias_term=True, filler=dict(type="constant", value=0.5)),
        'type: "Scale" scale_param { bias_term: true filler { type: "constant" value: 0.5 } }',
    ),
    "parameter message by name": (
        lambda x: L.Convolution(x, convolution_param=dict(num_output=3)),
        'type: "Convolution" convolution_param { num_output: 3 }',
    ),
    "message object": (
        lambda x: L.Scale(x, filler=caffe_pb2.FillerParameter(type="msra")),
        'type: "Scale" scale_param { filler { type: "msra" } }',
    ),
    "empty message": (lambda x: L.ReLU(x, relu_param={}), 'type: "ReLU" relu_param {}'),
    "empty list": (lambda x: L.ReLU(x, param=[]), 'type: "ReLU"'),
    "of the layer": (
        lambda x: L.ReLU(x, include=dict(phase=caffe.TRAIN, stage=["a"]), loss_weight=2, propagate_down=False),
        'type: "ReLU" loss_weight: 2 propagate_down: false include { phase: TRAIN stage: "a" }',
    ),
    "transformation": (
        lambda x: L.Data(transform_param=dict(mirror=True, mean_value=[1, 2, 3]), backend=P.Data.LMDB),
        'type: "Data" transform_param { mirror: true mean_value: [1, 2, 3] } data_param { backend: LMDB }',
    ),
    "NumPy numbers": (
        lambda x: L.Power(x, power=np.float32(0.5), scale=np.int64(2)),
        'type: "Power" power_param { power: 0.5 scale: 2 }',
    ),
    "Python layer": (
        lambda x: L.Python(x, module="m", layer="C", param_str="{'a': 1}"),
        """type: "Python" python_param { module: "m" layer: "C" param_str: "{'a': 1}" }""",
    ),
    "parameters under another type's name": (
        lambda x: L.Deconvolution(x, kernel_size=4, stride=2),
        'type: "Deconvolution" convolution_param { kernel_size: 4 stride: 2 }',
    ),
    "LSTM": (lambda x: L.LSTM(x, num_output=4), 'type: "LSTM" recurrent_param { num_output: 4 }'),
    "two types with one message": (
        lambda x: L.ReLU(x, negative_slope=0.5),
        'type: "ReLU" relu_param { negative_slope: 0.5 }',
    ),
    "type of a fork": (
        lambda x: L.ROIPooling(x, pooled_h=7, spatial_scale=0.0625),
        'type: "ROIPooling" roi_pooling_param { pooled_h: 7 spatial_scale: 0.0625 }',
    ),
    "a type's own field that is called like a parameter message": (
        lambda x: L.DetectionOutput(x, nms_param=dict(nms_threshold=0.5)),
        'type: "DetectionOutput" detection_output_param { nms_param { nms_threshold: 0.5 } }',
    ),
    "unknown type": (lambda x: L.Custom(x, loss_weight=1), 'type: "Custom" loss_weight: 1'),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_keywords_set_fields_of_the_right_message(name: str) -> None:
    build, expected = SETTINGS[name]
    layer = build(L.Input()).to_proto().layer[-1]
    expected_layer = parse_text(expected, caffe_pb2.LayerParameter)
    expected_layer.name = layer.name
    expected_layer.bottom.extend(layer.bottom)
    expected_layer.top.extend(layer.top)
    assert layer == expected_layer


def test_layers_may_have_a_different_name_than_their_top() -> None:
    n = NetSpec()
    n.data = L.Input(shape=dict(dim=[1]))
    n.out = L.ReLU(n.data, name="another")
    assert [(layer.name, *layer.top) for layer in n.to_proto().layer] == [("data", "data"), ("another", "out")]


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda n: L.Convolution(n.data, kernl_size=3), AttributeError, "'kernl_size'; did you mean 'kernel_size'"),
        (lambda n: L.ReLU(n.data, phse=1), AttributeError, "'phse'; did you mean 'phase'"),
        (lambda n: L.Scale(n.data, filler=dict(typ="x")), AttributeError, "FillerParameter has no setting 'typ'"),
        (lambda n: L.Convolution(n.data, num_output="ten"), TypeError, "num_output cannot be 'ten'"),
        (lambda n: L.Convolution(n.data, num_output=-1), TypeError, "num_output cannot be -1"),
        (lambda n: L.Scale(n.data, filler="xavier"), TypeError, "filler takes a dict of settings, not 'xavier'"),
    ],
)
def test_errors_of_invalid_settings_name_the_layer(build: Any, error: type[Exception], message: str) -> None:
    n = NetSpec()
    n.data = L.Input()
    n.broken = build(n)
    with pytest.raises(error, match=rf"layer 'broken' \(\w+\): .*{message}"):
        n.to_proto()


def test_enum_values_are_read_by_name() -> None:
    assert (P.Pooling.AVE, P.Eltwise.SUM, P.Loss.VALID) == (1, 1, 1)
    with pytest.raises(AttributeError, match="did you mean 'PoolingParameter'"):
        _ = P.Poling.MAX


def test_items_are_attributes() -> None:
    n = NetSpec()
    n["data"] = L.Input()
    n.relu = L.ReLU(n["data"])
    assert n.data is n["data"]
    assert n.keys() == ["data", "relu"]
    assert n.vals() == [n.data, n.relu]
    assert list(n.tops) == ["data", "relu"]
    assert "relu" in n
    updated_spec = NetSpec()
    updated_spec.update(n)
    del n.relu
    del n["data"]
    assert n.keys() == []
    assert updated_spec.keys() == ["data", "relu"]
    for error in (AttributeError, KeyError):
        with pytest.raises(error, match=r"^this NetSpec has no blob 'rely'; did you mean 'relu'\?$"):
            _ = updated_spec.rely
    assert getattr(updated_spec, "nothing", None) is None


def test_a_net_may_have_a_thousand_layers() -> None:
    top = L.Input(shape=dict(dim=[1]))
    for _ in range(1000):
        top = L.Power(top)
    assert to_proto(top).layer[-1].name == "Power1000"


def test_settings_of_all_types_are_accepted_by_name() -> None:
    """NetSpec accepts the settings of each registered type by name, without the name of the parameter message."""
    for name, kind in layer_types().items():
        if kind.signature.param is None:
            continue
        field = getattr(caffe_pb2.LayerParameter(), kind.signature.param).DESCRIPTOR.fields[0]
        number = field.enum_type.values[0].number if field.enum_type else 1
        value = {} if field.message_type else "x" if field.cpp_type == field.CPPTYPE_STRING else number
        layer = Function(name, [], {field.name: value}).to_proto().layer[0]
        assert [f.name for f, _ in getattr(layer, kind.signature.param).ListFields()] == [field.name], name


def test_param_names_agree_with_the_schema() -> None:
    names = param_name_dict()
    assert names["InnerProduct"] == "inner_product"
    assert names["ReLU"] == "relu"
    assert names["HDF5Data"] == "hdf5_data"


def test_assign_proto() -> None:
    net = caffe_pb2.NetParameter()
    assign_proto(net, "layer", [dict(name="a", bottom="x"), dict(name="b", top=["y", "z"])])
    assign_proto(net, "state", dict(phase=caffe.TEST, stage="deploy"))
    assert [list(layer.top) for layer in net.layer] == [[], ["y", "z"]]
    assert list(net.state.stage) == ["deploy"]


FORKS: dict[str, tuple[Callable[[Top], Any], str]] = {
    "norm_param": (
        lambda x: L.Normalize(x, scale_filler=dict(type="constant", value=20), across_spatial=False),
        'type: "Normalize" norm_param { across_spatial: false scale_filler { type: "constant" value: 20 } }',
    ),
    "smooth_l1_loss_param": (
        lambda x: L.SmoothL1Loss(x, x, sigma=3, loss_weight=2),
        'type: "SmoothL1Loss" loss_weight: 2 smooth_l1_loss_param { sigma: 3 }',
    ),
    "no smooth_l1_loss_param": (lambda x: L.SmoothL1Loss(x, x, loss_weight=2), 'type: "SmoothL1Loss" loss_weight: 2'),
    "l1_loss_param": (
        lambda x: L.L1Loss(x, x, l2_per_location=True),
        'type: "L1Loss" l1_loss_param { l2_per_location: true }',
    ),
    "gather_param": (lambda x: L.Gather(x, axis=1, indices=[0]), 'type: "Gather" gather_param { axis: 1 indices: 0 }'),
    "split_param": (lambda x: L.Split(x, engine=1), 'type: "Split" split_param { engine: CAFFE }'),
    "an alias": (
        lambda x: L.INTERP(x, zoom_factor=2),
        'type: "INTERP" interp_param { zoom_factor: 2 }',
    ),
    "a type without a field": (
        lambda x: L.Lstm(x, num_output=2, clipping_threshold=1),
        'type: "Lstm" lstm_param { num_output: 2 clipping_threshold: 1 }',
    ),
}


@pytest.mark.parametrize("case", FORKS)
def test_types_of_forks_take_their_settings_as_keywords(case: str) -> None:
    make, text = FORKS[case]
    net = to_proto(make(L.Input(shape=dict(dim=[1, 1, 2, 2]))))
    layer = net.layer[-1]
    expected = parse_text(f"layer {{ {text} }}", caffe_pb2.NetParameter).layer[0]
    for field in ("name", "bottom", "top"):
        layer.ClearField(field)
    assert layer == expected


def test_update_changes_the_settings_of_a_layer() -> None:
    n = NetSpec()
    n.data = L.Input(shape=dict(dim=[1, 1, 4, 4]))
    n.conv = L.Convolution(n.data, num_output=2, kernel_size=3, param=[dict(lr_mult=1)])
    n.none = L.Silence(n.data, ntop=0)
    n.update("conv", dict(dilation=2, param=[dict(lr_mult=0), dict(lr_mult=0)]))
    n.update("none", dict(include=dict(phase=caffe_pb2.TEST)))
    layers = {layer.name: layer for layer in n.to_proto().layer}
    assert list(layers["conv"].convolution_param.dilation) == [2]
    assert [p.lr_mult for p in layers["conv"].param] == [0, 0]
    assert layers["none"].include[0].phase == caffe_pb2.TEST
    with pytest.raises(KeyError, match=r"no blob 'con'.*conv"):
        n.update("con", {})
