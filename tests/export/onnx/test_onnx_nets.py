"""Nets exported to ONNX: equal outputs, and readable graphs."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_oracle import assert_equal, assert_model_equals_net, compute_net_outputs, run_onnx

from caffejax import Net, __version__
from caffejax.export import InferenceModel, Uint8Preprocessing, make_inference_model
from caffejax.export.onnx import SUPPORTED_OPSETS, export_onnx, write_onnx
from export.random_params import draw_variables
from export.test_stablehlo import CLASSIFICATION, DETECTION, SEGMENTATION, SIAMESE

REPOSITORY = Path(__file__).parents[3]

IN_PLACE = """
  layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }
  layer { name: "scale" type: "Power" bottom: "data" top: "data" power_param { scale: 0.1 } }
  layer { name: "shift" type: "Power" bottom: "data" top: "data" power_param { shift: 2 } }
"""
ODD_NAMES = """
  layer { name: "a b" type: "Input" top: "x: 1/é" input_param { shape { dim: 2 dim: 3 } } }
  layer { name: "same" type: "TanH" bottom: "x: 1/é" top: "sizes/Shape" }
  layer { name: "same" type: "Sigmoid" bottom: "sizes/Shape" top: "same/constant" }
  layer { name: "sum" type: "Eltwise" bottom: "same/constant" bottom: "sizes/Shape" top: "sum/Add"
    eltwise_param { coeff: 2 coeff: -1 } }
"""
FORKS_INNER_PRODUCTS = """
  layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }
  layer { name: "weight" type: "Parameter" top: "weight" parameter_param { shape { dim: 4 dim: 3 } } }
  layer { name: "unit" type: "InnerProduct" bottom: "data" top: "unit"
    inner_product_param { num_output: 5 normalize: true weight_filler { type: "xavier" } } }
  layer { name: "other" type: "InnerProduct" bottom: "data" bottom: "weight" top: "other"
    inner_product_param { num_output: 4 bias_term: false } }
"""
CONFIGS = REPOSITORY / "configs"
NETS = {
    "classification": CLASSIFICATION,
    "segmentation": SEGMENTATION,
    "siamese": SIAMESE,
    "detection": DETECTION,
    "in_place": IN_PLACE,
    "odd_names": ODD_NAMES,
    "forms": FORKS_INNER_PRODUCTS,
}
LONG_NETS = ["squeezenet", "mobilenet", "cifar10_full", "lstm", "faster_rcnn_toy/test", "ssd_shapes/deploy"]


def make_subject(text: Any, outputs: Any = None) -> InferenceModel:
    """Return a net whose weights and statistics are not zero."""
    net = Net(text)
    return make_inference_model(net, draw_variables(net), outputs)


def draw_inputs(subject: InferenceModel) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {name: rng.normal(size=b.shape).astype(b.dtype) for name, b in subject.inputs.items()}


@pytest.mark.parametrize("name", NETS)
def test_a_net_gives_equal_outputs(name: str) -> None:
    subject = make_subject(NETS[name])
    model = assert_model_equals_net(subject, draw_inputs(subject))
    assert [v.name for v in model.graph.input] == list(subject.inputs)
    assert [v.name for v in model.graph.output] == list(subject.outputs)
    assert all(v.type.tensor_type.shape.dim[0].dim_param for v in model.graph.input)


@pytest.mark.long
@pytest.mark.parametrize("name", LONG_NETS)
def test_a_larger_net_gives_equal_outputs(name: str) -> None:
    path = CONFIGS / (f"{name}.prototxt" if "/" in name else f"{name}/train_val.prototxt")
    net = Net(path).for_inference()
    subject = make_subject(path, [*net.outputs, *(b for layer in net.graph.layers[-1:] for b in layer.bottoms)])
    assert_model_equals_net(subject, draw_inputs(subject))


@pytest.mark.parametrize("opset", [SUPPORTED_OPSETS[0], SUPPORTED_OPSETS[-1]])
@pytest.mark.parametrize("name", ["classification", "segmentation"])
def test_every_opset_gives_equal_outputs(name: str, opset: int) -> None:
    subject = make_subject(NETS[name])
    model = assert_model_equals_net(subject, draw_inputs(subject), opset=opset)
    assert [(o.domain, o.version) for o in model.opset_import] == [("", opset)]


def test_the_graph_has_the_names_of_the_net() -> None:
    graph = export_onnx(make_subject(CLASSIFICATION)).graph
    assert [(node.name, node.op_type, *node.output) for node in graph.node] == [
        ("conv", "Conv", "conv/conv"),
        ("relu", "PRelu", "conv"),
        ("norm", "LRN", "norm"),
        ("pool", "MaxPool", "pool/pool"),
        ("drop", "Dropout", "pool"),
        ("ip/Flatten", "Flatten", "ip/Flatten"),
        ("ip/Gemm", "Gemm", "ip"),
    ]
    assert {i.name for i in graph.initializer} == {"conv/0", "conv/1", "relu/0", "ip/0", "ip/1"}


def test_batch_norm_and_scale_are_one_node_unless_the_blob_between_is_an_output() -> None:
    ops = [node.op_type for node in export_onnx(make_subject(SEGMENTATION)).graph.node]
    assert ops[:3] == ["Conv", "BatchNormalization", "Relu"]
    text = SEGMENTATION.replace('name: "scale" type: "Scale" bottom: "conv" top: "conv"', 'name: "scale" type: "Scale" '
                                'bottom: "conv" top: "scaled"').replace('name: "relu" type: "ReLU" bottom: "conv" top: '
                                '"conv"', 'name: "relu" type: "ReLU" bottom: "scaled" top: "relu"')  # fmt: skip
    text = text.replace('name: "pool" type: "Pooling" bottom: "conv"', 'name: "pool" type: "Pooling" bottom: "relu"')
    subject = make_subject(text, ["prob", "conv"])
    assert [n.op_type for n in assert_model_equals_net(subject, draw_inputs(subject)).graph.node][1:4] == [
        "BatchNormalization",
        "Mul",
        "Add",
    ]


def test_shared_weights_are_stored_once() -> None:
    matrices = [i for i in export_onnx(make_subject(SIAMESE)).graph.initializer if len(i.dims) == 2]
    assert len(matrices) == 1


def test_the_file_is_the_model(tmp_path: Path) -> None:
    subject = make_subject("name: 'small'\n" + CLASSIFICATION)
    model = write_onnx(subject, tmp_path / "net.onnx")
    loaded = onnx.load(tmp_path / "net.onnx")
    assert loaded == model
    assert (loaded.producer_name, loaded.producer_version, loaded.graph.name) == ("caffejax", __version__, "small")
    inputs = draw_inputs(subject)
    assert_equal(run_onnx(loaded, inputs), compute_net_outputs(subject, inputs))


def test_large_weights_are_written_to_a_second_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caffejax.export.onnx.save_onnx._MAX_BYTES", 1000)
    monkeypatch.setattr("caffejax.export.onnx.save_onnx._MIN_WEIGHT_BYTES", 100)
    subject, path = make_subject(CLASSIFICATION), tmp_path / "net.onnx"
    model = write_onnx(subject, path)
    data = tmp_path / "net.onnx.data"
    assert sorted(tmp_path.iterdir()) == [path, data]
    assert path.stat().st_size < data.stat().st_size
    onnx.checker.check_model(path, full_check=True)
    external = [i for i in onnx.load(path, load_external_data=False).graph.initializer if i.external_data]
    assert 0 < len(external) < len(model.graph.initializer)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = draw_inputs(subject)
    assert_equal(
        dict(zip(subject.outputs, session.run(subject.outputs, inputs), strict=True)),
        compute_net_outputs(subject, inputs),
    )
    # what was there stays whole where something goes wrong
    contents_before = {name: name.read_bytes() for name in (path, data)}
    monkeypatch.setattr(onnx.ModelProto, "SerializeToString", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_onnx(subject, path)
    assert {name: name.read_bytes() for name in tmp_path.iterdir()} == contents_before


def test_a_model_with_preprocessing_takes_images() -> None:
    subject = make_subject(SEGMENTATION)
    preprocessing = Uint8Preprocessing(
        "data", (20, 21, 3), (16, 18), (2, 1, 0), mean=np.full((3, 1, 1), 99, np.float32), scale=0.1
    )
    model = export_onnx(subject, preprocessing=preprocessing)
    images = np.random.default_rng(2).integers(0, 256, (3, 20, 21, 3)).astype(np.uint8)
    assert_equal(
        run_onnx(model, {"data": images}), compute_net_outputs(subject, {"data": np.asarray(preprocessing(images))})
    )
    with pytest.raises(Exception, match="uint8"):
        run_onnx(model, {"data": images.astype(np.float32)})


@pytest.mark.parametrize(
    "pooling",
    [
        'type: "ROIPooling" roi_pooling_param { pooled_h: 2 pooled_w: 3 }',
        'type: "ROIAlign" roi_pooling_param { pooled_h: 2 pooled_w: 3 }',
        'type: "PSROIPooling" psroi_pooling_param { spatial_scale: 1 output_dim: 2 group_size: 2 }',
    ],
)
def test_boxes_with_infinite_corners_are_pooled_equally(pooling: str) -> None:
    """The boxes of a detector for an image that it has not learned."""
    text = f"""
    layer {{ name: "data" type: "Input" top: "data" top: "rois"
      input_param {{ shape {{ dim: 1 dim: 8 dim: 6 dim: 7 }} shape {{ dim: 6 dim: 5 }} }} }}
    layer {{ name: "pooled" bottom: "data" bottom: "rois" top: "pooled" {pooling} }}
    """
    far, nan = np.float32(1e30), np.float32("nan")
    boxes = [(1, 1, 5, 4), (nan, 1, 5, 4), (1, 1, np.inf, 4), (-far, -far, far, far), (far, far, far, far), (nan,) * 4]
    inputs = {
        "data": np.random.default_rng(0).normal(size=(1, 8, 6, 7)).astype(np.float32),
        "rois": np.asarray([(0, *box) for box in boxes], np.float32),
    }
    net = Net(text)
    assert_model_equals_net(InferenceModel(net.for_inference(), draw_variables(net)), inputs)
