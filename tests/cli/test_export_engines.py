"""`caffejax export --for` and `--check`: the form of the file, the run in the engine, and the messages."""

import base64
import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import pytest

from caffejax.cli import main
from caffejax.export import proof

IMAGE = """layer { name: "data" type: "TYPE" top: "data" SHAPE TRANSFORM }
layer { name: "c" type: "Convolution" bottom: "data" top: "c"
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "prob" type: "Softmax" bottom: "c" top: "prob" }"""
INPUT = "input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } }"
TRANSFORM = "transform_param { scale: 0.02 mean_value: 104 mean_value: 117 mean_value: 123 }"
BOXES = Path(__file__).parents[1] / "golden" / "opencv_dnn" / "boxes.prototxt"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with nets; also the working directory."""
    monkeypatch.chdir(tmp_path)
    text = IMAGE.replace("TYPE", "Input").replace("SHAPE", INPUT)
    (tmp_path / "plain.prototxt").write_text(text.replace("TRANSFORM", ""))
    (tmp_path / "net.prototxt").write_text(text.replace("TRANSFORM", TRANSFORM))
    placeholder = text.replace("dim: 8", "dim: 1").replace("TRANSFORM", "")
    (tmp_path / "placeholder.prototxt").write_text(placeholder)
    return tmp_path


def run_export(net: str, *flags: str, to: str = "net.onnx") -> int:
    return int(main(["export", net, "--random_weights", f"--to={to}", *flags]))


def read_dims(file: str) -> list[Any]:
    return [d.dim_value or d.dim_param for d in onnx.load(file).graph.input[0].type.tensor_type.shape.dim]


def test_the_file_runs_in_the_engine_and_the_difference_is_logged(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_export("net.prototxt", "--for=onnxruntime") == 0
    log = capsys.readouterr().err
    assert re.search(r"Checked in ONNX Runtime [\d.]+: largest difference of prob 1x4x8x8: \d\.\de-\d\d of ", log)
    assert read_dims("net.onnx") == ["batch", 3, 8, 8]


def test_a_plain_export_runs_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(proof, "run_in_engine", lambda *arguments: pytest.fail("it ran"))
    assert run_export("net.prototxt") == 0
    assert run_export("net.prototxt", "--for=onnxruntime", "--nocheck") == 0
    assert "Checked" not in capsys.readouterr().err


def test_other_numbers_are_an_error_that_keeps_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_in_engine = proof.run_in_engine

    def run_wrongly(*arguments: Any) -> dict[str, np.ndarray]:
        return {name: array * 1.01 for name, array in run_in_engine(*arguments).items()}

    monkeypatch.setattr(proof, "run_in_engine", run_wrongly)
    assert run_export("net.prototxt", "--check", "--report=page.html") == 1
    assert "the file is kept, but it computes other numbers than the net, beyond 0.001: prob" in capsys.readouterr().err
    onnx.checker.check_model(onnx.load("net.onnx"))
    page = Path("page.html").read_text()
    assert page.count("data:image/png") == 2  # the labels of both
    assert '<tr class="wrong"><td>prob</td>' in page


def test_the_report_draws_the_detections_of_both(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The net finds nothing, and the engine a box: the pictures differ along its sides, and are equal elsewhere."""
    nothing = np.full((1, 1, 12, 7), -1, np.float32)
    found = nothing.copy()
    found[0, 0, 0] = [0, 1, 0.9, 0.25, 0.5, 0.75, 0.875]
    monkeypatch.setattr(proof, "compute_expected", lambda *arguments, **settings: {"found": nothing})
    monkeypatch.setattr(proof, "run_in_engine", lambda *arguments: {"found": found})
    assert run_export(str(BOXES), "--for=opencv5", "--size=160,160", "--report=page.html") == 1
    page = Path("page.html").read_text()
    assert '<tr class="wrong"><td>found</td>' in page
    assert re.findall("<figcaption>([^<]*)", page)[0] == "the net"
    pngs = [np.frombuffer(base64.b64decode(text), np.uint8) for text in re.findall("base64,([^']*)'", page)]
    plain, drawn = (cv2.imdecode(png, cv2.IMREAD_COLOR) for png in pngs)
    pixels = len(plain) // 160  # of the picture, along a pixel of the image
    differs = (plain != drawn).any(axis=-1)
    left, top, right, bottom = (n * pixels for n in (40, 80, 120, 140))
    for line in (differs[bottom, left:right], differs[top + 60 : bottom, left], differs[top + 60 : bottom, right]):
        assert line.all()
    margin = 2 * pixels
    assert not differs[top + 60 : bottom - margin, left + margin : right - margin].any()
    assert not differs[bottom + margin :].any()
    assert not differs[:, : left - margin].any()
    assert not differs[:, right + margin :].any()


def test_inputs_come_from_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("good.npz", data=np.full((1, 3, 8, 8), 2, np.float32))
    np.savez("bad.npz", other=np.zeros(3))
    np.save("wrong.npy", np.zeros((1, 3, 4, 8)))
    assert run_export("net.prototxt", "--check", "--inputs=good.npz") == 0
    assert run_export("net.prototxt", "--check", "--inputs=bad.npz") == 1
    assert "bad.npz: has no array 'data', an input of shape (1, 3, 8, 8)" in capsys.readouterr().err
    assert run_export("net.prototxt", "--check", "--inputs=wrong.npy") == 1
    assert "'data' has shape (1, 3, 4, 8), but the input has (1, 3, 8, 8)" in capsys.readouterr().err


def test_damaged_inputs_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("x.npz", data=np.zeros((1, 3, 8, 8), np.float32))
    archive = Path("x.npz").read_bytes()
    Path("damaged.npz").write_bytes(archive.replace(bytes(64), bytes(63) + b"x", 1))
    Path("archive.npy").write_bytes(archive)
    Path("empty.npy").touch()
    np.save("words.npy", np.full((1, 3, 8, 8), "x"))
    Path("array.npz").write_bytes(Path("words.npy").read_bytes())
    for name, message in (
        ("damaged.npz", "its member 'data.npy' is not an array, or damaged: Bad CRC-32"),
        ("archive.npy", "is not a .npy file of real numbers, or damaged: the magic string is not correct"),
        ("empty.npy", "is not a .npy file of real numbers, or damaged: EOF"),
        ("words.npy", "is not a .npy file of real numbers, or damaged: its dtype is <U1"),
        ("array.npz", "it contains one array, as an .npy file does"),
        (".", "cannot be read: Is a directory|this is a folder"),
    ):
        assert run_export("plain.prototxt", "--check", f"--inputs={name}") == 1
        assert re.search(message, capsys.readouterr().err), name


@pytest.mark.parametrize("report", ["absent/page.html", ".", "plain.prototxt", "inputs.npy", "net.onnx"])
def test_a_report_that_cannot_be_written_is_refused_at_once(
    folder: Path, capsys: pytest.CaptureFixture[str], report: str
) -> None:
    np.save("inputs.npy", np.zeros((1, 3, 8, 8), np.float32))
    assert run_export("plain.prototxt", "--check", "--inputs=inputs.npy", f"--report={report}") == 1
    assert re.search("cannot be written|would overwrite an input file", capsys.readouterr().err)
    assert not Path("net.onnx").exists()


def test_images_are_drawn_in_the_range_of_the_transform_param(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[np.ndarray] = []
    monkeypatch.setattr(
        proof, "run_in_engine", lambda package, path, inputs: drawn.append(inputs["data"]) or pytest.skip("drawn")
    )
    with pytest.raises(pytest.skip.Exception):
        run_export("net.prototxt", "--check")
    means = np.array([104, 117, 123], np.float32).reshape(3, 1, 1)
    pixels = drawn[0] / 0.02 + means
    assert pixels.min() > -0.01
    assert pixels.max() < 255.01
    np.testing.assert_allclose(pixels, np.rint(pixels), atol=1e-3)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--for=opencv5", "--batch=any"], "--batch=any contradicts --for=opencv5"),
        (["--for=opencv5", "--nopad_rows"], "--nopad_rows contradicts --for=opencv5: OpenCV 5 takes no shapes that"),
        (["--for=tensorrt", "--pad_rows=false"], "--nopad_rows contradicts --for=tensorrt"),
        (["--for=opencv5", "--size=8"], "--size must be a height and a width"),
        (["--inputs=x.npz"], "--inputs works only with --check or --for"),
        (["--report=x.html"], "--report works only with --check or --for"),
        (["--for=onnxruntime", "--nocheck", "--report=x.html"], "--report works only with --check or --for"),
    ],
)
def test_flags_that_contradict_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    assert run_export("net.prototxt", *flags) == 1
    assert message in capsys.readouterr().err
    assert not Path("net.onnx").exists()


def test_for_is_a_flag_of_onnx(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_export("net.prototxt", "--for=opencv5", to="net.stablehlo") == 1
    assert "--for works only with onnx" in capsys.readouterr().err


def test_explicit_flags_change_the_form(folder: Path) -> None:
    assert run_export("net.prototxt", "--for=opencv5", "--nocheck", "--batch=2", "--opset=19") == 0
    assert read_dims("net.onnx") == [2, 3, 8, 8]
    assert onnx.load("net.onnx").opset_import[0].version == 19
    assert run_export("net.prototxt", "--for=opencv5", "--nocheck") == 0
    assert read_dims("net.onnx") == [1, 3, 8, 8]


def test_tensorrt_is_not_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_export("net.prototxt", "--for=tensorrt") == 0
    assert "not run in TensorRT: checked by onnx's checker" in capsys.readouterr().err


def test_a_missing_engine_is_an_error_only_with_check(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(proof, "find_spec", lambda name: None)
    assert run_export("net.prototxt", "--for=openvino", "--report=page.html") == 0
    message = (
        "not run in OpenVINO: the package openvino is not installed: pip install openvino; page.html is not written"
    )
    assert message in capsys.readouterr().err
    assert run_export("net.prototxt", "--for=openvino", "--check") == 1


def test_size_replaces_a_placeholder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_export("placeholder.prototxt") == 0
    assert "input 'data' has 1 x 1 pixels, a placeholder: give its size with --size=H,W" in capsys.readouterr().err
    assert run_export("placeholder.prototxt", "--size=12,16") == 0
    assert "placeholder" not in capsys.readouterr().err
    assert read_dims("net.onnx") == ["batch", 3, 12, 16]


@pytest.mark.parametrize(
    ("layer_type", "shape"),
    [
        ("Input", INPUT),
        ("MemoryData", 'top: "label" memory_data_param { batch_size: 1 channels: 3 height: 8 width: 8 }'),
    ],
)
def test_the_advice_to_use_transform_param_is_good(
    folder: Path, capsys: pytest.CaptureFixture[str], layer_type: str, shape: str
) -> None:
    text = IMAGE.replace("TYPE", layer_type).replace("SHAPE", shape).replace("TRANSFORM", TRANSFORM)
    Path("memory.prototxt").write_text(text)
    assert run_export("memory.prototxt") == 0
    assert "or use --preprocess=transform_param" in capsys.readouterr().err
    assert run_export("memory.prototxt", "--preprocess=transform_param", "--check") == 0
    assert read_dims("net.onnx") == ["batch", 8, 8, 3]


def test_no_advice_is_given_that_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = 'layer { name: "more" type: "Input" top: "more" input_param { shape { dim: 1 dim: 4 dim: 8 dim: 8 } } }'
    total = 'layer { name: "sum" type: "Eltwise" bottom: "prob" bottom: "more" top: "sum" }'
    text = IMAGE.replace("TYPE", "Input").replace("SHAPE", INPUT).replace("TRANSFORM", TRANSFORM)
    Path("two.prototxt").write_text(f"{text}\n{second}\n{total}")
    assert run_export("two.prototxt") == 0
    log = capsys.readouterr().err
    assert "apply it to the inputs" in log
    assert "--preprocess" not in log


def test_detections_are_padded_for_opencv(folder: Path) -> None:
    flags = ["--for=opencv5", "--nocheck"]
    assert main(["export", str(BOXES), f"--weights={BOXES.with_suffix('.caffemodel')}", "--to=net.onnx", *flags]) == 0
    dims = onnx.load("net.onnx").graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_value for d in dims] == [1, 1, 12, 7]


def test_rows_are_padded_where_the_engine_or_the_flag_says_so(folder: Path) -> None:
    for flags, rows in ([], "rows"), (["--pad_rows"], "12*batch"), (["--pad_rows", "--nopad_rows"], "rows"):
        assert run_export(str(BOXES), "--for=onnxruntime", "--nocheck", *flags) == 0
        assert onnx.load("net.onnx").graph.output[0].type.tensor_type.shape.dim[2].dim_param == rows


def test_stablehlo_and_flax_are_checked_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_export("net.prototxt", "--check", to="net.stablehlo") == 0
    assert "Checked in JAX" in capsys.readouterr().err
    pytest.importorskip("flax")
    assert run_export("net.prototxt", "--check", "--out=source", to="flax") == 0
    assert "Checked in flax" in capsys.readouterr().err
