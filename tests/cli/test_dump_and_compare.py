"""`caffejax collect` and `caffejax compare`, the script for pycaffe, and files that are not dumps."""

import json
import re
import runpy
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caffejax.base.import_alias import temporary_alias
from caffejax.cli import main
from caffejax.tools.debugging.dumps import Dump, DumpedLayer, compare_dumps, read_dump

SCRIPT = Path(__file__).parents[2] / "scripts" / "collect_with_caffe.py"
NET = """
name: "small"
layer { name: "x" type: "Input" top: "x" top: "y" input_param { shape { dim: 2 dim: 3 } shape { dim: 2 dim: 4 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" param { name: "w" }
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } bias_term: false } }
layer { name: "tanh" type: "TanH" bottom: "ip" top: "ip" }
layer { name: "ip" type: "Scale" bottom: "ip" top: "ip" scale_param { filler { value: 2 } } }
layer { name: "relu" type: "ReLU" bottom: "ip" top: "relu" }
layer { name: "sum" type: "Eltwise" bottom: "ip" bottom: "relu" top: "sum" }
layer { name: "loss" type: "EuclideanLoss" bottom: "sum" bottom: "y" top: "loss" loss_weight: 0.5 }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)
    return tmp_path


def run_script(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *arguments])
    with temporary_alias("caffe", "caffejax.pycaffe"):
        runpy.run_path(str(SCRIPT), run_name="__main__")


def test_the_script_makes_the_same_dump(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script runs pycaffe layer by layer, with the diffs in the blobs, independently of `record_dump`."""
    assert len(SCRIPT.read_text().splitlines()) < 40
    flags = ["--model=net.prototxt", "--phase=TRAIN", "--backward"]
    assert main(["collect", *flags, "--out=ours.npz"]) == 0
    run_script(monkeypatch, "net.prototxt", "caffe.npz", "--like=ours.npz", "--phase=TRAIN", "--backward")
    caffejax_dump, script_dump = read_dump("ours.npz"), read_dump("caffe.npz")
    result = compare_dumps(caffejax_dump, script_dump, rtol=1e-6)
    assert result.ok, str(result)
    assert caffejax_dump.arrays.keys() <= script_dump.arrays.keys()
    assert [x.name for x in script_dump.layers] == [x.name for x in caffejax_dump.layers]
    assert "ip#2" in {x.name for x in caffejax_dump.layers}  # a name that Caffe lets a net have twice
    assert {"top/tanh/ip", "top_diff/ip#2/ip", "grad/ip#2/0"} <= caffejax_dump.arrays.keys()
    # random inputs are those that NumPy's old generator draws
    run_script(monkeypatch, "net.prototxt", "own.npz")
    dump = read_dump("own.npz")
    for name, array in dump.arrays_of_kind("input").items():
        np.testing.assert_array_equal(array, caffejax_dump.arrays_of_kind("input")[name])


def test_a_dump_is_compared_with_a_live_net(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "net.prototxt").write_text(NET.replace('"sum"', '"日本$ {/../"'))  # no path, no formula, in no font
    (folder / "other.prototxt").write_text(NET.replace("TanH", "Sigmoid"))
    np.savez("in.npz", x=np.ones((3, 3), np.float16), y=np.zeros((3, 4), int))
    assert main(["collect", "--model=net.prototxt", "--inputs=in.npz", "--backward", "--out=a.npz"]) == 0
    assert main(["compare", "a.npz", "--model=net.prototxt", "--picture=p.png"]) == 0
    assert (folder / "p.png").read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert "are equal (rtol 0.001, atol 1e-07)" in out
    assert "gradient of param 0" in out
    assert main(["compare", "a.npz", "--model=other.prototxt", "--picture=q.svg"]) == 1
    output = capsys.readouterr()
    assert "They first differ in layer 'tanh' (TanH): type TanH in A, Sigmoid in B" in output.out
    assert "caffejax: layer 'tanh' (TanH): the dumps first differ here" in output.err
    assert main(["compare", "a.npz", "--model=other.prototxt", "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["rows"][result["first"]]["layer"] == "tanh"
    assert not result["ok"]


def test_a_net_of_bfloat16_is_dumped_in_float32(folder: Path) -> None:
    assert main(["collect", "--model=net.prototxt", "--backward", "--precision=bfloat16", "--out=a.npz"]) == 0
    assert {array.dtype for array in read_dump("a.npz").arrays.values()} == {np.dtype(np.float32)}
    assert main(["compare", "a.npz", "--model=net.prototxt", "--rtol=0.05"]) == 0


def write_invalid_dumps(path: Path) -> dict[str, Any]:
    """Return files that are not dumps, with the expected messages."""
    with np.load(path) as file:
        arrays = dict(file)
    meta = json.loads(str(arrays["meta"]))

    def save_dump(name: str, **replacements: Any) -> str:
        np.savez(name, **{**arrays, **replacements})
        return name

    def save_dump_with_meta(name: str, **replacements: Any) -> str:
        return save_dump(name, meta=json.dumps({**meta, **replacements}))

    Path("text.npz").write_text("no zip")
    Path("truncated.npz").write_bytes(path.read_bytes()[:-300])
    with zipfile.ZipFile(save_dump("huge.npz"), "a") as archive, archive.open("blob/z.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)})
    np.savez("weights.npz", **{"ip/0": np.zeros(3)})
    return {
        "nowhere.npz": "no such file",
        "text.npz": "not an .npz file, or damaged",
        "truncated.npz": "not an .npz file, or damaged",
        "huge.npz": "its member 'blob/z.npy' is not an array",
        "weights.npz": "no string named `meta`",
        save_dump("pickled.npz", blob=np.array([{}], object)): "it holds Python objects",
        save_dump("words.npz", **{"blob/x": np.array(["a"])}): "'blob/x' has dtype <U1, but must contain real numbers",
        save_dump("complex.npz", **{"blob/x": np.zeros(2, complex)}): "'blob/x' has dtype complex128",
        save_dump("number.npz", meta=np.zeros(2)): "no string named `meta`",
        save_dump("nojson.npz", meta="{"): "its `meta` is invalid",
        save_dump("deep.npz", meta="[" * 100_000): "its `meta` is invalid",
        save_dump_with_meta("format.npz", format="9"): "format is '9'",
        save_dump_with_meta("layers.npz", layers=[{"name": "a"}]): "its `meta` is invalid",
        save_dump_with_meta(
            "names.npz", layers=[{"name": 1, "type": "a", "bottoms": [], "tops": []}]
        ): "not a list of names",
        save_dump_with_meta("words_for_layers.npz", layers=["a"]): "its layers are not a list of objects",
        "/dev/zero": "it is a device, a pipe or a socket",
        save_dump_with_meta("list.npz", layers=3): "its `meta` is invalid",
        save_dump_with_meta("twice.npz", layers=meta["layers"] * 2): "two layers are named",
        save_dump_with_meta("phase.npz", phase="NEITHER"): "phase is 'NEITHER'",
    }


def test_files_that_are_not_dumps_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collect", "--model=net.prototxt", "--out=a.npz"]) == 0
    for name, message in write_invalid_dumps(folder / "a.npz").items():
        assert main(["compare", "a.npz", name]) == 1, name
        assert message in capsys.readouterr().err, name


@pytest.mark.parametrize(
    ("changed_arrays", "message"),
    [
        ({"input/x": None}, "'x', but the dump has no 'input/x'"),
        ({"input/x": np.zeros((2, 5))}, "input 'x' has shape (2, 5), but the net expects (2, 3)"),
        ({"param/ip/0": None}, "layer 'ip': the dump does not contain its parameters; pass a weights file"),
        ({"param/ip/0": np.zeros((4, 4))}, "layer 'ip': blob 0 is 4 x 4 in the file, 4 x 3 in the net"),
        ({"param/ip/77": np.zeros(1)}, "layer 'ip': the file has 2 blobs, the net 1"),
    ],
)
def test_a_dump_that_does_not_fit_the_net_is_refused(
    changed_arrays: dict[str, Any], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    meta = {"format": "caffe dump 1", "maker": "test", "net": "", "phase": "TEST", "layers": []}
    arrays = {"input/x": np.zeros((2, 3)), "input/y": np.zeros((2, 4)), "param/ip/0": np.zeros((4, 3))}
    arrays |= {"param/ip#2/0": np.zeros(4), **changed_arrays}
    np.savez("a.npz", meta=json.dumps(meta), **{k: v for k, v in arrays.items() if v is not None})
    assert main(["compare", "a.npz", "--model=net.prototxt"]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "a.npz"], "the first dump can be compared with a second dump or with a net"),
        (["compare", "a.npz", "b.npz", "--each_layer"], "give a net, not a second dump"),
        (["compare", "a.npz", "b.npz", "--picture=a.gibberish"], "'.gibberish' is not a picture format"),
        (["collect", "--model=deploy.prototxt", "--out=b.npz", "--backward"], "has no loss in phase TEST"),
        (["collect", "--model=net.prototxt", "--out=no/b.npz"], "cannot be written"),
        (["collect", "--model=net.prototxt", "--out=net.prototxt"], "would overwrite an input file"),
        (["collect", "--model=net.prototxt", "--out=link.npz", "--inputs=in.npz"], "would overwrite an input file"),
        (["collect", "--model=net.prototxt", "--out=b.npz", "--inputs=in.npz"], "the net has no input 'z'"),
        (["collect", "--model=net.prototxt", "--out=b.npz", "--inputs=words.npz"], "'x' has dtype <U1"),
    ],
)
def test_invalid_arguments_are_refused_and_write_nothing(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "deploy.prototxt").write_text(NET[: NET.index('layer { name: "loss"')])
    np.savez("in.npz", z=np.zeros(3))
    Path("link.npz").symlink_to("in.npz")
    np.savez("words.npz", x=np.array(["a"]))
    assert main(arguments) == 1
    assert message in capsys.readouterr().err
    assert not (folder / "b.npz").exists()


def test_names_in_a_dump_cannot_move_the_cursor(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collect", "--model=net.prototxt", "--out=a.npz"]) == 0
    with np.load("a.npz") as file:
        arrays = dict(file)
    meta = json.loads(str(arrays["meta"]))
    meta["layers"][1]["type"] = "\x1b[2JInput\nData"
    np.savez("b.npz", **{**arrays, "meta": json.dumps(meta)})
    capsys.readouterr()
    assert main(["compare", "a.npz", "b.npz"]) == 1
    table = capsys.readouterr().out
    assert "\x1b" not in table
    assert r"\x1b[2JInput\nData" in table


def test_dumps_of_net_mismatch_differ(folder: Path) -> None:
    arrays = {"blob/a": np.ones(2)}
    a, b = (Dump("test", "", "TEST", (DumpedLayer(name, "ReLU", ("x",), ("a",)),), arrays) for name in "ab")
    result = compare_dumps(a, b)
    assert [row.verdict for row in result.differences] == ["only in A", "only in B"]
    assert result.net_mismatch in str(result).replace("These", "these")
    assert "with 1 layer, B of '' with 1, and 0 of them have the same name" in result.net_mismatch
    assert not compare_dumps(a, a).net_mismatch


def test_a_dump_of_another_net_is_reported_as_such(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collect", "--model=net.prototxt", "--out=a.npz"]) == 0
    text = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }'
    (folder / "other.prototxt").write_text(
        f'name: "other" {text}'
        + "".join(f'layer {{ name: "r{i}" type: "ReLU" bottom: "x" top: "{i}" }}' for i in range(4))
    )
    capsys.readouterr()
    assert main(["compare", "a.npz", "--model=other.prototxt"]) == 1
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("caffejax: "))
    assert re.search(r"two different nets: the dump is of net 'small' with \d+ layers, the model is 'other'", line)
    assert "1 of them have the same name and type" in line


def test_names_that_an_npz_cannot_hold_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, out = tmp_path / "net.prototxt", tmp_path / "out.npz"
    net.write_text('layer { name: "d" type: "Input" top: "a\\000b" input_param { shape { dim: 1 } } }')
    assert main(["collect", f"--model={net}", f"--out={out}"]) == 1
    assert r"'blob/a\x00b': names in an .npz end at a NUL character" in capsys.readouterr().err
    assert not out.exists()
