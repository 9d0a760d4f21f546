"""Nets exported as StableHLO give the same numbers without caffejax, for any number of rows."""

import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from caffejax import CaffejaxError, GraphError, Net, load_weights
from caffejax.export import BatchError, InferenceModel, export_stablehlo, make_inference_model, write_stablehlo
from caffejax.export.inference_model import symbolic_batch_shapes
from fresh_processes import call_exported

REPOSITORY = Path(__file__).parents[2]
GOLDEN = REPOSITORY / "tests" / "golden"

SSD = REPOSITORY / "tests" / "forks" / "detection" / "recorded" / "nets" / "ssd_tiny_a"
FILLER = 'weight_filler { type: "xavier" }'


def input_layer(name: str, *dims: int) -> str:
    shape = " ".join(f"dim: {n}" for n in dims)
    return f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {shape} }} }} }}'


CLASSIFICATION = f"""
  {input_layer("data", 2, 1, 12, 12)} {input_layer("label", 2)}
  layer {{ name: "conv" type: "Convolution" bottom: "data" top: "conv"
    convolution_param {{ num_output: 6 kernel_size: 3 stride: 2 group: 1 {FILLER} }} }}
  layer {{ name: "relu" type: "PReLU" bottom: "conv" top: "conv" }}
  layer {{ name: "norm" type: "LRN" bottom: "conv" top: "norm" }}
  layer {{ name: "pool" type: "Pooling" bottom: "norm" top: "pool" pooling_param {{ kernel_size: 3 stride: 2 }} }}
  layer {{ name: "drop" type: "Dropout" bottom: "pool" top: "pool" }}
  layer {{ name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param {{ num_output: 10 {FILLER} }} }}
  layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""
SEGMENTATION = f"""
  {input_layer("data", 1, 3, 16, 18)}
  layer {{ name: "conv" type: "Convolution" bottom: "data" top: "conv"
    convolution_param {{ num_output: 4 kernel_size: 3 pad: 4 {FILLER} }} }}
  layer {{ name: "norm" type: "BatchNorm" bottom: "conv" top: "conv" }}
  layer {{ name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param {{ bias_term: true }} }}
  layer {{ name: "relu" type: "ReLU" bottom: "conv" top: "conv" }}
  layer {{ name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param {{ kernel_size: 2 stride: 2 }} }}
  layer {{ name: "up" type: "Deconvolution" bottom: "pool" top: "up"
    convolution_param {{ num_output: 5 kernel_size: 4 stride: 2 {FILLER} }} }}
  layer {{ name: "crop" type: "Crop" bottom: "up" bottom: "data" top: "crop" crop_param {{ offset: 2 }} }}
  layer {{ name: "prob" type: "Softmax" bottom: "crop" top: "prob" }}
"""
SIAMESE = "\n".join(
    [
        input_layer("pair", 2, 2, 6, 6),
        'layer { name: "slice" type: "Slice" bottom: "pair" top: "a" top: "b" slice_param { slice_point: 1 } }',
        *(
            f'layer {{ name: "ip_{x}" type: "InnerProduct" bottom: "{x}" top: "feat_{x}" param {{ name: "w" }} '
            f'param {{ name: "c" }} inner_product_param {{ num_output: 4 {FILLER} }} }}'
            for x in "ab"
        ),
    ]
)
DETECTION = f"""
  {input_layer("data", 1, 3, 16, 16)}
  layer {{ name: "conv" type: "Convolution" bottom: "data" top: "conv"
    convolution_param {{ num_output: 4 kernel_size: 4 stride: 4 {FILLER} }} }}
  layer {{ name: "priors" type: "PriorBox" bottom: "conv" bottom: "data" top: "priors"
    prior_box_param {{ min_size: 5 variance: 0.1 }} }}
  layer {{ name: "loc" type: "Permute" bottom: "conv" top: "loc"
    permute_param {{ order: 0 order: 2 order: 3 order: 1 }} }}
  layer {{ name: "flat_loc" type: "Flatten" bottom: "loc" top: "flat_loc" }}
  layer {{ name: "conf" type: "Convolution" bottom: "conv" top: "conf"
    convolution_param {{ num_output: 2 kernel_size: 1 {FILLER} }} }}
  layer {{ name: "last" type: "Permute" bottom: "conf" top: "last"
    permute_param {{ order: 0 order: 2 order: 3 order: 1 }} }}
  layer {{ name: "rows" type: "Reshape" bottom: "last" top: "rows"
    reshape_param {{ shape {{ dim: 0 dim: -1 dim: 2 }} }} }}
  layer {{ name: "prob" type: "Softmax" bottom: "rows" top: "prob" softmax_param {{ axis: 2 }} }}
  layer {{ name: "flat" type: "Flatten" bottom: "prob" top: "flat" }}
  layer {{ name: "found" type: "DetectionOutput" bottom: "flat_loc" bottom: "flat" bottom: "priors" top: "found"
    detection_output_param {{ num_classes: 2 code_type: CENTER_SIZE nms_param {{ top_k: 8 }} keep_top_k: 5 }} }}
"""
LSTM = f"""
  {input_layer("data", 4, 2, 5)} {input_layer("cont", 4, 2)}
  layer {{ name: "lstm" type: "LSTM" bottom: "data" bottom: "cont" top: "lstm"
    recurrent_param {{ num_output: 3 {FILLER} }} }}
  layer {{ name: "ip" type: "InnerProduct" bottom: "lstm" top: "ip"
    inner_product_param {{ num_output: 6 axis: 2 {FILLER} }} }}
"""
REGIONS = f"""
  {input_layer("data", 1, 3, 8, 8)} {input_layer("rois", 3, 5)}
  layer {{ name: "pool" type: "ROIPooling" bottom: "data" bottom: "rois" top: "pool"
    roi_pooling_param {{ pooled_h: 2 pooled_w: 2 spatial_scale: 1 }} }}
  layer {{ name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param {{ num_output: 4 {FILLER} }} }}
"""


def build_subject(model: Any, weights: Path | None = None, phase: Any = "TEST") -> InferenceModel:
    """The net with numbers in all its params and statistics."""
    net = Net(model, phase)
    variables = net.init(jax.random.key(0))
    if weights is not None:
        return make_inference_model(net, load_weights(weights, net.graph, variables))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda p: p + 0.1 * rng.normal(size=p.shape).astype(np.float32), variables.params)
    state = jax.tree.map(lambda s: rng.uniform(0.5, 1.5, s.shape).astype(np.float32), variables.state)
    return make_inference_model(net, variables._replace(params=params, state=state))


def draw_inputs(subject: InferenceModel, rows: int | None, axis: int = 0) -> dict[str, np.ndarray]:
    """Return numbers for a batch with this many rows; default: the net's."""
    rng = np.random.default_rng(7)
    shapes = {name: list(blob.shape) for name, blob in subject.inputs.items()}
    for shape in shapes.values():
        shape[axis] = rows or shape[axis]
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def compute(subject: InferenceModel, inputs: dict[str, np.ndarray]) -> Any:
    """Return the net's results, compiled without optimizations."""
    lowered = jax.jit(subject.run).lower(inputs)
    return lowered.compile(compiler_options={"xla_backend_optimization_level": 0})(inputs)


def assert_equal(actual: dict[str, np.ndarray], expected: dict[str, Any]) -> None:
    assert actual.keys() == expected.keys()
    for name, blob in expected.items():
        assert np.ptp(blob) > 0, "the net says the same of everything"
        np.testing.assert_allclose(actual[name], blob, rtol=1e-5, atol=1e-5 * np.abs(blob).max(), err_msg=name)


@pytest.mark.parametrize(
    ("model", "outputs"),
    [
        # -n is n for each row
        pytest.param(CLASSIFICATION, {"ip": (-1, 10)}, id="classification"),
        pytest.param(SEGMENTATION, {"prob": (-1, 5, 16, 18)}, id="segmentation"),
        pytest.param(SIAMESE, {"feat_a": (-1, 4), "feat_b": (-1, 4)}, id="siamese"),
        pytest.param(DETECTION, {"found": (1, 1, -5, 7)}, id="detection"),
    ],
)
def test_an_exported_net_takes_any_batch_size_in_another_process(
    tmp_path: Path,
    fresh_process: ProcessPoolExecutor,
    model: Any,
    outputs: dict[str, tuple[int, ...]],
) -> None:
    subject = build_subject(model)
    exported = write_stablehlo(subject, tmp_path / "net.stablehlo")
    assert exported.platforms == ("cpu", "cuda", "tpu")
    serialized = (tmp_path / "net.stablehlo").read_bytes()
    for rows in (1, 4):
        arguments = draw_inputs(subject, rows)
        actual = fresh_process.submit(call_exported, serialized, (arguments,)).result()
        assert_equal(actual, compute(subject, arguments))
        assert {name: blob.shape for name, blob in actual.items()} == {
            name: tuple(-rows * n if n < 0 else n for n in shape) for name, shape in outputs.items()
        }


@pytest.mark.long
def test_detections_equal_caffes(tmp_path: Path, fresh_process: ProcessPoolExecutor) -> None:
    subject = build_subject(SSD / "deploy.prototxt", SSD / "weights.caffemodel")
    write_stablehlo(subject, tmp_path / "net.stablehlo")
    with np.load(SSD / "deploy.npz", allow_pickle=False) as recorded:
        image, expected = recorded["blob/data"], recorded["blob/detection_out"]
    serialized = (tmp_path / "net.stablehlo").read_bytes()
    actual = fresh_process.submit(call_exported, serialized, ({"data": image},)).result()["detection_out"][0, 0]
    rows = actual[actual[:, 0] >= 0]  # the others are padding
    np.testing.assert_allclose(rows, expected[0, 0], rtol=1e-4, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "input_types"),
    [
        ("faster_rcnn_toy/test", None),
        ("googlenet/train_val", ["float32[batch,3,224,224]"]),
        ("lstm/train_val", None),
        ("openpose/train_val", ["float32[batch,3,368,656]"]),
        ("pspnet50/train_val", ["float32[batch,3,473,473]"]),
        ("segnet/train_val", ["float32[batch,3,360,480]"]),
        ("ssd300/train_val", ["float32[batch,3,300,300]"]),
    ],
)
def test_exported_nets_have_a_symbolic_batch_size_if_supported(name: str, input_types: list[str] | None) -> None:
    """Whole nets, which are not run; None for those that take one number of rows only."""
    net = Net(REPOSITORY / "configs" / f"{name}.prototxt")
    shapes = jax.eval_shape(net.init, jax.random.key(0))
    subject = make_inference_model(net, jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes))
    if input_types is None:
        with pytest.raises(BatchError, match="layer '"):
            export_stablehlo(subject)
        input_types = [f"float32[{','.join(map(str, blob.shape))}]" for _, blob in sorted(subject.inputs.items())]
        exported = export_stablehlo(subject, symbolic_batch=False)
    else:
        exported = export_stablehlo(subject)
    assert [str(aval) for aval in exported.in_avals] == input_types
    assert set(re.findall(r"custom_call @(\w+)", exported.mlir_module())) <= {"shape_assertion"}


def test_inputs_of_equal_batch_size_share_a_symbol() -> None:
    sum_of_both = 'layer { name: "sum" type: "Eltwise" bottom: "ip" bottom: "offsets" top: "sum" }'
    shapes = symbolic_batch_shapes(build_subject(REGIONS + input_layer("offsets", 3, 4) + sum_of_both))
    lengths = {name: str(shapes[name].shape[0]) for name in ("data", "rois", "offsets", "sum")}
    assert lengths == {"data": "batch_0", "rois": "batch_1", "offsets": "batch_1", "sum": "batch_1"}


def test_images_and_regions_have_separate_batch_sizes(tmp_path: Path, fresh_process: ProcessPoolExecutor) -> None:
    subject = build_subject(REGIONS)
    write_stablehlo(subject, tmp_path / "net.stablehlo")
    images = draw_inputs(subject, None)["data"]
    rois = np.array([[0, 1, 1, 5, 6], [0, 0, 2, 7, 7], [0, 3, 0, 6, 4], [0, 2, 2, 4, 4]], np.float32)
    arguments = {"data": images, "rois": rois}
    actual = fresh_process.submit(call_exported, (tmp_path / "net.stablehlo").read_bytes(), (arguments,)).result()
    assert actual["ip"].shape == (4, 4)
    assert_equal(actual, compute(subject, arguments))


def test_inputs_without_effect_remain_arguments() -> None:
    """One whose numbers do not matter, too."""
    text = f"""{input_layer("like", 2, 4, 3, 3)} {input_layer("data", 2, 4, 6, 6)}
      layer {{ name: "crop" type: "Crop" bottom: "data" bottom: "like" top: "crop" }}"""
    subject = build_subject(text)
    exported = export_stablehlo(subject, platforms=["cpu"], symbolic_batch=False)
    (arguments,) = re.findall(r"func\.func public @main\((.*)\) ->", exported.mlir_module())
    assert re.findall(r"tensor<(\w+)>", arguments) == ["2x4x6x6xf32", "2x4x3x3xf32"]


@pytest.mark.parametrize("streams", [None, 5])
def test_a_recurrent_net_is_exported_with_its_batch_size(
    tmp_path: Path, fresh_process: ProcessPoolExecutor, streams: int | None
) -> None:
    subject = build_subject(LSTM)
    if streams is not None:
        net = subject.net.with_batch(streams, axis=1)
        subject = InferenceModel(net, net.init(jax.random.key(0)))
    with pytest.raises(BatchError, match=r"layer 'lstm' \(LSTM\): the state carried from pass to pass"):
        export_stablehlo(subject, batch_axis=1)
    write_stablehlo(subject, tmp_path / "net.stablehlo", symbolic_batch=False)
    arguments = draw_inputs(subject, None)
    actual = fresh_process.submit(call_exported, (tmp_path / "net.stablehlo").read_bytes(), (arguments,)).result()
    assert_equal(actual, compute(subject, arguments))


def test_names_may_contain_any_characters(tmp_path: Path, fresh_process: ProcessPoolExecutor) -> None:
    text = f'name: "na\u00efve \\"net\\" % / 1" {input_layer("a b/c-1", 2, 3)}'
    text += 'layer { name: "t h" type: "TanH" bottom: "a b/c-1" top: "\u00e9/{x}" }'
    subject = build_subject(text)
    write_stablehlo(subject, tmp_path / "net.stablehlo")
    arguments = draw_inputs(subject, 4)
    actual = fresh_process.submit(call_exported, (tmp_path / "net.stablehlo").read_bytes(), (arguments,)).result()
    assert_equal(actual, {"\u00e9/{x}": np.tanh(arguments["a b/c-1"])})


def test_no_custom_calls_are_exported() -> None:
    """Only what JAX itself takes out again: the check of symbolic lengths."""
    subject = build_subject(SEGMENTATION)
    assert set(re.findall(r"custom_call @(\w+)", export_stablehlo(subject).mlir_module())) == {"shape_assertion"}
    for platform in ("cpu", "cuda", "tpu"):
        text = export_stablehlo(subject, symbolic_batch=False, platforms=[platform]).mlir_module()
        assert "custom_call @" not in text
        assert "stablehlo.convolution" in text


def test_exported_trees_name_inputs_and_outputs() -> None:
    exported = export_stablehlo(build_subject(SIAMESE))
    assert "'pair'" in str(exported.in_tree)
    assert [str(aval) for aval in exported.in_avals] == ["float32[batch,2,6,6]"]
    assert re.findall("'(feat_.)'", str(exported.out_tree)) == ["feat_a", "feat_b"]


@pytest.mark.parametrize(
    ("model", "options", "error", "message"),
    [
        (
            f'{input_layer("data", 2, 3)} layer {{ name: "r" type: "Reshape" bottom: "data" top: "r" '
            "reshape_param { shape { dim: 3 dim: 2 } } }",
            {},
            BatchError,
            r"layer 'r' \(Reshape\)",
        ),
        (
            f'{input_layer("data", 2, 3)} layer {{ name: "one" type: "Python" bottom: "data" top: "a" python_param {{ '
            'module: "export.host_layer" layer: "Host" } }} layer {{ name: "two" type: "Python" bottom: "a" top: "b" '
            'python_param { module: "export.host_layer" layer: "Host" } }'.replace("{{", "{").replace("}}", "}"),
            {},
            GraphError,
            r"(?s)layer 'one' \(Python\): cannot be exported: it runs on the host.*layer 'two' \(Python\)",
        ),
        (
            " ".join(
                [input_layer("data", 2, 3)]
                + [
                    f'layer {{ name: "{n}" type: "Dropout" bottom: "data" top: "{n}" '
                    "dropout_param { sample_weights_test: true } }"
                    for n in ("one", "two")
                ]
            ),
            {},
            GraphError,
            r"'one' \(Dropout\): cannot be exported: it samples random .*\n.*'two' \(Dropout\): .* samples random",
        ),
        (SIAMESE, {"platforms": ["gpu", "cpu"]}, CaffejaxError, "one or more of cpu, cuda, tpu, rocm, not 'gpu'"),
        (SIAMESE, {"platforms": []}, CaffejaxError, "not none"),
    ],
    ids=["rows", "host", "random", "platform", "no_platform"],
)
def test_an_error_names_all_layers_that_cannot_be_exported(
    tmp_path: Path, model: str, options: dict[str, Any], error: type[CaffejaxError], message: str
) -> None:
    with pytest.raises(error, match=message):
        write_stablehlo(build_subject(model), tmp_path / "net.stablehlo", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_net_that_is_too_large_for_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caffejax.export.stablehlo._MAX_BYTES", 100)
    with pytest.raises(CaffejaxError, match=r"net\.stablehlo: would take .* KiB, mostly weights"):
        write_stablehlo(build_subject(SIAMESE), tmp_path / "net.stablehlo")
    assert list(tmp_path.iterdir()) == []
