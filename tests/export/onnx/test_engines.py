"""Exports for engines: the engine computes what the net computes, or a message names the layer."""

import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest

from caffejax import CaffejaxError, Net
from caffejax.export import InferenceModel, make_inference_model, write_onnx
from caffejax.export.engines import ENGINES
from caffejax.export.onnx import export_onnx
from caffejax.export.onnx.build_model import convert
from caffejax.export.onnx.onnx_builder import OnnxBuilder, node_output, value_info
from caffejax.export.proof import (
    compare_outputs,
    compute_expected,
    draw_inputs,
    find_detections,
    find_package_problem,
    run_in_engine,
)
from caffejax.forks.detection.boxes import non_max_suppression, suppress_without_loops
from export.onnx.onnx_oracle import compute_net_outputs, run_onnx
from export.random_params import draw_variables

RECORDED = Path(__file__).parents[2] / "forks"
BOXES = Path(__file__).parents[2] / "golden" / "opencv_dnn" / "boxes.prototxt"
DATA = 'layer { name: "x" type: "Input" top: "x" input_param { shape { DIMS } } }'
YOLO = """layer { name: "found" type: "YoloDetectionOutput" bottom: "x" top: "found" yolo_detection_output_param {
  num_box: 2 num_classes: 3 coords: 4 confidence_threshold: 0.2 nms_threshold: 0.3
  biases: 1 biases: 2 biases: 2 biases: 1 } }"""
LSTM = """layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "h"
  recurrent_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "fc" type: "InnerProduct" bottom: "h" top: "y" inner_product_param { num_output: 3 axis: 2 } }"""
ROIS = 'layer { name: "rois" type: "Input" top: "rois" input_param { shape { dim: 2 dim: 5 } } }'
ROI_POOLING = """layer { name: "pool" type: "ROIPooling" bottom: "x" bottom: "rois" top: "y"
  roi_pooling_param { pooled_h: 3 pooled_w: 3 spatial_scale: 1 } }"""
PSROI = """layer { name: "pool" type: "PSROIPooling" bottom: "x" bottom: "rois" top: "y"
  psroi_pooling_param { spatial_scale: 1 output_dim: 2 group_size: 3 } }"""


def make_data(*dims: int, name: str = "x") -> str:
    return DATA.replace("DIMS", " ".join(f"dim: {n}" for n in dims)).replace('"x"', f'"{name}"')


NETS = {
    "yolo": make_data(2, 16, 4, 4) + YOLO,
    "lstm": make_data(3, 2, 5) + make_data(3, 2, name="cont") + LSTM,
    "roi_pooling": make_data(1, 512, 9, 9)
    + ROIS
    + ROI_POOLING,  # in two parts: OpenCV 5 misplaces the results of a Loop
    "psroi_pooling": make_data(1, 18, 9, 9) + ROIS + PSROI,
    "prelu": make_data(2, 4)
    + 'layer { name: "p" type: "PReLU" bottom: "x" top: "y" prelu_param { channel_shared: true } }',
    "pointwise": make_data(1, 3, 5, 5)
    + """layer { name: "c" type: "Convolution" bottom: "x" top: "y"
    convolution_param { num_output: 4 kernel_size: 1 pad: 1 } }""",  # OpenCV 5 reads beyond the input
    "reduction": make_data(2, 4) + 'layer { name: "r" type: "Reduction" bottom: "x" top: "y" }',
    "boxes": BOXES.read_text(),
    "margin": make_data(4, 6)
    + make_data(4, name="label")
    + """layer { name: "m" type: "MarginInnerProduct" bottom: "x" bottom: "label" top: "y"
    margin_inner_product_param { num_output: 5 type: QUADRUPLE base: 9 weight_filler { type: "xavier" } } }""",
    "region_loss": (RECORDED / "yolo" / "recorded" / "RegionLoss" / "yolo2.prototxt").read_text(),
    "proposal": (RECORDED / "rcnn" / "recorded" / "Proposal" / "pva.prototxt").read_text(),
}


def make_model(name: str) -> InferenceModel:
    net = Net(NETS[name], "TEST")
    return make_inference_model(net, draw_variables(net))


def draw_engine_inputs(name: str, model: InferenceModel) -> dict[str, np.ndarray]:
    inputs = draw_inputs(model, {"x": (np.float32(128), 0.02)})
    if name == "proposal":  # distinct scores, boxes near their anchors, and an image of the maps' size in pixels
        random, size = np.random.default_rng(0), inputs["prob"].size
        inputs["prob"] = (random.permutation(size) / size).astype(np.float32).reshape(inputs["prob"].shape)
        inputs["delta"] = random.normal(0, 0.3, inputs["delta"].shape).astype(np.float32)
        inputs["im_info"] = np.float32([[80, 112, 1, 1]])
    return inputs


def assert_equal_in_engine(name: str, engine_name: str, path: Path) -> None:
    engine, model = ENGINES[engine_name], make_model(name)
    if problem := find_package_problem(str(engine.package)):
        pytest.skip(problem)
    write_onnx(model, path, engine=engine, opset=engine.opset, pad_rows=engine.pad_rows, symbolic_batch=False)
    inputs = draw_engine_inputs(name, model)
    expected = compute_expected(model, inputs, pad_rows=engine.pad_rows)
    outputs = run_in_engine(str(engine.package), str(path), inputs)
    for difference in compare_outputs(outputs, expected, find_detections(model)):
        assert difference.largest > 0
        assert difference.relative < 1e-4, difference


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("engine", ["opencv5", "openvino", "onnxruntime"])
def test_the_engine_computes_what_the_net_computes(name: str, engine: str, tmp_path: Path) -> None:
    assert_equal_in_engine(name, engine, tmp_path / "net.onnx")


@pytest.mark.parametrize("name", NETS)
def test_operators_that_an_engine_lacks_are_not_written(name: str) -> None:
    model = make_model(name)
    for engine in ENGINES.values():
        proto = export_onnx(model, engine=engine, opset=engine.opset, pad_rows=engine.pad_rows, symbolic_batch=False)
        assert {node.op_type for node in proto.graph.node}.isdisjoint(engine.lacks)


def test_no_model_for_opencv_depends_on_data_or_has_a_loop() -> None:
    operators = {
        node.op_type for node in export_onnx(make_model("yolo"), pad_rows=True, symbolic_batch=False).graph.node
    }
    assert operators.isdisjoint({"Loop", "If"})


def test_where_of_many_values_is_split_for_opencv(tmp_path: Path) -> None:
    """OpenCV 5.0 computes other numbers in several threads where there are more than 2**23."""
    engine = replace(ENGINES["opencv5"], max_selected=12)
    builder = OnnxBuilder(18, ["c", "x", "one"], engine)
    random = np.random.default_rng(0)
    arrays = {"c": random.random((2, 3, 5)) > 0.5, "x": random.normal(size=(2, 3, 5)).astype(np.float32)}
    arrays["one"] = random.normal(size=(3, 1)).astype(np.float32)
    values = [node_output(name, array.shape, array.dtype) for name, array in arrays.items()]
    (result,) = convert(builder, lambda c, x, one: jnp.where(c, x, one), values)
    assert [node.op_type for node in builder.nodes].count("Where") == 3
    graph = onnx.helper.make_graph(
        builder.nodes, "g", [value_info(v) for v in values], [value_info(result)], list(builder.initializers.values())
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    (name,) = [output.name for output in model.graph.output]
    np.testing.assert_array_equal(run_onnx(model, arrays)[name], np.where(arrays["c"], arrays["x"], arrays["one"]))


def test_yolo_is_padded_for_any_batch_size() -> None:
    model = make_model("yolo")
    proto = export_onnx(model, pad_rows=True)
    for batch in 1, 3:
        x = np.random.default_rng(batch).normal(size=(batch, 16, 4, 4)).astype(np.float32)
        found = run_onnx(proto, {"x": x})["found"]
        assert found.shape == (1, 1, batch * 32, 7)
        expected = compute_net_outputs(model, {"x": x})["found"]
        num_rows = expected.shape[2]
        np.testing.assert_allclose(found[:, :, :num_rows], expected, atol=1e-5)
        assert (found[:, :, num_rows:] == -1).all()


def test_a_loop_that_depends_on_data_is_refused_with_its_layer() -> None:
    text = BOXES.read_text().replace("nms_param {", "nms_param { eta: 0.9 ")
    assert "eta" in text
    net = Net(text, "TEST")
    model = make_inference_model(net, draw_variables(net))
    with pytest.raises(CaffejaxError, match=r"\(DetectionOutput\).*OpenCV 5 takes no loops"):
        export_onnx(model, engine=ENGINES["opencv5"], pad_rows=True, symbolic_batch=False)


def test_tensorrt_refuses_more_values_than_it_sorts() -> None:
    text = make_data(1, 4000) + 'layer { name: "a" type: "ArgMax" bottom: "x" top: "y" argmax_param { top_k: 3900 } }'
    model = make_inference_model(net := Net(text, "TEST"), net.init(jax.random.key(0)))
    with pytest.raises(CaffejaxError, match=r"layer 'a' \(ArgMax\).*TensorRT sorts at most 3839"):
        export_onnx(model, engine=ENGINES["tensorrt"], symbolic_batch=False)
    export_onnx(model, engine=ENGINES["openvino"], symbolic_batch=False)


@pytest.mark.parametrize("max_selected", [None, 20])
def test_unrolled_suppression_selects_the_same_boxes(max_selected: int | None) -> None:
    random = np.random.default_rng(0)
    corners = random.uniform(0, 10, (150, 2))
    boxes = jnp.asarray(np.concatenate([corners, corners + random.uniform(1, 4, (150, 2))], axis=1))
    valid = jnp.asarray(random.random(150) > 0.1)
    expected = non_max_suppression(boxes, valid, 0.3, max_selected=max_selected)
    with suppress_without_loops():
        selected = non_max_suppression(boxes, valid, 0.3, max_selected=max_selected)
    np.testing.assert_array_equal(selected, expected)
    assert 10 < expected.sum() < 150


def test_equal_values_keep_their_order_for_an_engine_with_an_unstable_sort() -> None:
    """The second sort restores the order that ONNX Runtime keeps anyway: both models must give the same."""
    text = (
        make_data(2, 40)
        + """layer { name: "a" type: "ArgMax" bottom: "x" top: "y"
      argmax_param { top_k: 30 axis: 1 } }"""
    )
    model = make_inference_model(net := Net(text, "TEST"), net.init(jax.random.key(0)))
    proto = export_onnx(model, engine=ENGINES["openvino"], symbolic_batch=False)
    assert [node.op_type for node in proto.graph.node].count("TopK") == 2
    x = np.random.default_rng(0).integers(0, 4, (2, 40)).astype(np.float32)
    np.testing.assert_array_equal(run_onnx(proto, {"x": x})["y"], compute_net_outputs(model, {"x": x})["y"])


def test_rows_are_compared_as_sets_and_other_outputs_in_order() -> None:
    rows = np.array([[0, 1, 0.9, 1, 2, 3, 4], [0, 2, 0.9, 5, 6, 7, 8]], np.float32)[None, None]
    swapped = {"found": rows[:, :, ::-1]}
    assert compare_outputs(swapped, {"found": rows}, frozenset({"found"}))[0].is_small
    assert not compare_outputs(swapped, {"found": rows})[0].is_small
    missing = compare_outputs({"found": rows[:, :, :1]}, {"found": rows}, frozenset({"found"}))[0]
    assert not missing.is_small
    assert not compare_outputs({}, {"found": rows})[0].is_small
    assert not compare_outputs({"found": rows * np.nan}, {"found": rows})[0].is_small


def test_an_engine_that_refuses_a_file_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(CaffejaxError, match=r"bad.onnx: onnxruntime .* does not run it: "):
        run_in_engine("onnxruntime", str(tmp_path / "bad.onnx"), {})


def test_an_engine_that_is_killed_may_have_needed_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = subprocess.CompletedProcess([], -signal.SIGKILL, "", "")
    monkeypatch.setattr("caffejax.export.proof.subprocess.run", lambda *arguments, **options: killed)
    with pytest.raises(CaffejaxError, match="its process ended with -9, perhaps because memory ran out"):
        run_in_engine("onnxruntime", "net.onnx", {})


def test_opencv_4_is_not_taken_for_opencv_5(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caffejax.export.proof.get_version", lambda package: "4.14.0.94")
    assert "OpenCV 4.14.0.94 is installed, not OpenCV 5" in str(find_package_problem("cv2"))
