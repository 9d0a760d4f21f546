"""`caffejax export`: its files, its messages, and its refusals."""

import re
import sys
from pathlib import Path
from typing import Any

import cv2
import jax
import jax.export
import numpy as np
import onnx
import onnxruntime
import pytest

from caffejax import Net, load_weights, save_weights
from caffejax.cli import main

INPUT = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }'
IP = """layer { name: "NAME" type: "InnerProduct" bottom: "BOTTOM" top: "NAME"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }"""
FIRST_IP, SECOND_IP = (
    IP.replace("NAME", name).replace("BOTTOM", bottom) for name, bottom in (("one", "data"), ("two", "one"))
)
FIXED_RESHAPE = (
    'layer { name: "fixed" type: "Reshape" bottom: "two" top: "fixed" reshape_param { shape { dim: 4 dim: 2 } } }'
)
NET = f"{INPUT} {FIRST_IP} {SECOND_IP}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with nets and weights; also the working directory."""
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("net", NET),
        ("fixed", NET + FIXED_RESHAPE),
        ("part", INPUT + FIRST_IP),
        ("other", NET.replace("4", "5")),
    ):
        (tmp_path / f"{name}.prototxt").write_text(text)
        net = Net(tmp_path / f"{name}.prototxt")
        save_weights(tmp_path / f"{name}.caffemodel", net.graph, net.init(jax.random.key(1)))
    return tmp_path


def run_export(*arguments: str) -> Any:
    assert main(["export", *arguments, "--to=net.stablehlo"]) == 0
    return jax.export.deserialize(bytearray(Path("net.stablehlo").read_bytes()))


def test_the_file_has_the_weights_and_the_log_describes_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run_export("net.prototxt", "--weights=net.caffemodel")
    assert re.search(
        r"\] Exported 2 layers: data float32\[batch,3\] to two float32\[batch,4\]\n", capsys.readouterr().err
    )
    net = Net("net.prototxt")
    inputs = {"data": np.arange(15, dtype=np.float32).reshape(5, 3)}
    expected, _ = net.apply(*load_weights("net.caffemodel", net.graph, net.init(jax.random.key(0))), inputs)
    np.testing.assert_allclose(result.call(inputs)["two"], expected["two"], rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "inputs"),
    [
        (["net.prototxt", "--weights=net.caffemodel"], ["float32[batch,3]"]),
        (["net.prototxt", "--weights=net.caffemodel", "--batch=7"], ["float32[7,3]"]),
        (["net.prototxt", "--weights=part.caffemodel,net.caffemodel", "--batch=any"], ["float32[batch,3]"]),
        (["net.prototxt", "--weights=part.caffemodel", "--outputs=one"], ["float32[batch,3]"]),
        (["net.prototxt", "--weights=part.caffemodel", "--random_weights"], ["float32[batch,3]"]),
        (["net.prototxt", "--weights=net.caffemodel", "--platforms=cpu"], ["float32[batch,3]"]),
        (["fixed.prototxt", "--weights=net.caffemodel"], ["float32[2,3]"]),
    ],
)
def test_the_exported_module_follows_the_flags(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], inputs: list[str]
) -> None:
    result = run_export(*arguments)
    assert [str(aval) for aval in result.in_avals] == inputs
    assert result.platforms == (("cpu",) if "--platforms=cpu" in arguments else ("cpu", "cuda", "tpu"))
    warning_pattern = (
        r"layer 'fixed' \(Reshape\): does not support a symbolic batch size: .*; --batch=N sets a fixed size"
    )
    assert bool(re.search(warning_pattern, capsys.readouterr().err)) == (arguments[0] == "fixed.prototxt")


WEIGHTS_FLAG = "--weights=net.caffemodel"


def test_the_onnx_model_follows_the_flags(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["export", "net.prototxt", WEIGHTS_FLAG, "--to=net.onnx"]
    assert main([*arguments, "--opset=18", "--batch=5"]) == 0
    model = onnx.load("net.onnx")
    assert [entry.version for entry in model.opset_import if not entry.domain] == [18]
    assert "data float32[5,3] to two float32[5,4]" in capsys.readouterr().err
    assert main(arguments) == 0
    assert "data float32[batch,3] to two float32[batch,4]" in capsys.readouterr().err
    assert main([*arguments, "--opset=3"]) == 1
    assert "opset must be" in capsys.readouterr().err


def test_an_onnx_model_with_preprocessing_takes_images(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dims = "dim: 2 dim: 3 dim: 4 dim: 4"
    image = f'layer {{ name: "i" type: "Input" top: "data" input_param {{ shape {{ {dims} }} }} }}'
    (folder / "images.prototxt").write_text(image + 'layer { name: "t" type: "TanH" bottom: "data" top: "t" }')
    assert main(["export", "images.prototxt", "--to=net.onnx", "--preprocess=classify", "--input_scale=0.01"]) == 0
    assert "data uint8[batch,4,4,3] to t float32[batch,3,4,4]" in capsys.readouterr().err
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3), np.uint8)
    (result,) = onnxruntime.InferenceSession("net.onnx").run(None, {"data": images})
    expected = np.tanh(images[..., ::-1].transpose(0, 3, 1, 2) * 0.01)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize("weight_format", ["safetensors", "orbax"])
def test_flax_source_is_written_into_a_new_folder_only(
    folder: Path, capsys: pytest.CaptureFixture[str], weight_format: str
) -> None:
    assert (
        main(["export", "net.prototxt", WEIGHTS_FLAG, "--to=flax", "--out=model", f"--weights_as={weight_format}"]) == 0
    )
    assert {"model.py", "README.md"} < {path.name for path in (folder / "model").iterdir()}
    assert "Wrote model" in capsys.readouterr().err
    assert main(["export", "net.prototxt", WEIGHTS_FLAG, "--to=flax", "--out=model"]) == 1
    assert "model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        ([], ["2 layers need weights: name a file with --weights; --random_weights"]),
        (["--weights=part.caffemodel"], ["layer 'two' (InnerProduct): the weight files have no blobs for this layer"]),
        (
            ["--weights=other.caffemodel"],
            [
                "other.caffemodel: these seem to be the weights of another net: the shapes of 2 of the 2 layers",
                "'two', blob 0 is 5 x 5 in the file",
            ],
        ),
        (["--weights=none.caffemodel"], ["none.caffemodel"]),
        ([WEIGHTS_FLAG, "--outputs=one,tow,x"], ["no blob 'tow' in the net; did you mean 'two'?", "no blob 'x'"]),
        (
            [WEIGHTS_FLAG, "--to=net.pb"],
            ["--to=net.pb: give a file that ends in .stablehlo or .onnx, or the word flax"],
        ),
        (
            [WEIGHTS_FLAG, "--to=nowhere/net.stablehlo"],
            ["nowhere/net.stablehlo: cannot be written", "create the folder"],
        ),
        ([WEIGHTS_FLAG, "--to=flax"], ["--to=flax needs --out=FOLDER"]),
        ([WEIGHTS_FLAG, "--out=a", "--opset=17"], ["--out works only with flax", "--opset works only with onnx"]),
        ([WEIGHTS_FLAG, "--pad_rows"], ["--pad_rows works only with onnx"]),
        ([WEIGHTS_FLAG, "--platforms=cpu,gpu"], ["not 'gpu'"]),
        (
            [WEIGHTS_FLAG, "--batch_axis=2"],
            ["--batch_axis=2: axes are counted from 0, and there is no such axis in data (2, 3)"],
        ),
        (
            ["fixed.prototxt", WEIGHTS_FLAG, "--batch=any"],
            ["layer 'fixed' (Reshape): does not support a symbolic batch size"],
        ),
        (["fixed.prototxt", WEIGHTS_FLAG, "--batch=3"], ["layer 'fixed' (Reshape)"]),
    ],
)
def test_exports_that_cannot_work_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], messages: list[str]
) -> None:
    files_before = sorted(folder.rglob("*"))
    model = [] if arguments and arguments[0].endswith("prototxt") else ["net.prototxt"]
    assert main(["export", *model, "--to=net.stablehlo", *arguments]) == 1
    output = [line for line in capsys.readouterr().err.splitlines() if line.startswith("caffejax: ")]
    for message in messages:
        assert any(message in line for line in output), output
    assert sorted(folder.rglob("*")) == files_before


@pytest.mark.parametrize(("suffix", "package"), [(".stablehlo", "flatbuffers"), (".onnx", "onnx")])
def test_a_package_that_is_missing_is_named(
    folder: Path, suffix: str, package: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["export", "net.prototxt", WEIGHTS_FLAG, f"--to=net{suffix}"]) == 1
    assert re.search(rf"the package {package}, .*: pip install .*\b{package}\b", capsys.readouterr().err)
    assert not list(folder.glob("net.[so]*"))


def test_weights_of_zeros_cause_a_warning(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bare.prototxt").write_text(NET.replace('weight_filler { type: "xavier" }', ""))
    run_export("bare.prototxt", "--random_weights")
    assert "bare.prototxt: layer 'one' and 1 more: all weights are 0" in capsys.readouterr().err
    run_export("net.prototxt", "--random_weights")
    assert "weights are 0" not in capsys.readouterr().err


def test_the_log_has_the_channels_last_shapes_of_flax(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "maps.prototxt").write_text(
        INPUT.replace("dim: 2 dim: 3", "dim: 2 dim: 3 dim: 5 dim: 6") + FIRST_IP.replace("InnerProduct", "ReLU")
    )
    assert main(["export", "maps.prototxt", "--to=flax", "--out=maps"]) == 0
    assert "data float32[batch,5,6,3] to one float32[batch,5,6,3]" in capsys.readouterr().err
    assert (folder / "maps" / "model.safetensors").stat().st_mode == (folder / "maps" / "model.py").stat().st_mode


@pytest.mark.parametrize("value", ["nan", "inf", "much"])
def test_factors_that_are_not_finite_are_refused(value: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["export", "net.prototxt", "--to=x.onnx", "--preprocess=classify", f"--raw_scale={value}"])
    assert f"'{value}' is not a finite number" in capsys.readouterr().err


def test_what_an_export_leaves_out_is_logged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("digits.prototxt").write_text(
        'layer { name: "d" type: "ImageData" top: "data" top: "label" transform_param { scale: 0.5 mean_value: 3 }'
        ' image_data_param { source: "list.txt" batch_size: 1 } }\n'
        'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }\n'
        'layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }\n'
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }'
    )
    cv2.imwrite("x.png", np.zeros((4, 5), np.uint8))
    Path("list.txt").write_text("x.png 0\n")
    run_export("digits.prototxt", "--random_weights")
    text = capsys.readouterr().err
    assert "Not exported: transform_param of layer 'd' (scale 0.5; mean 3): apply it to the inputs, or use" in text
    assert "Not exported: the softmax of layer 'loss': 'ip' contains scores" in text
    run_export("digits.prototxt", "--random_weights", "--preprocess=transform_param")
    assert "transform_param" not in capsys.readouterr().err
