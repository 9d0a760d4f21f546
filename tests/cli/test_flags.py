"""Flags that set the fields of `NetConfig`."""

import argparse
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import cv2
import jax
import pytest

from caffejax.base.config import LIMIT_FIELDS, NetConfig
from caffejax.cli import flags, info, main
from caffejax.cli.parser import Parser


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    result = Parser()
    flags.add_options(result)
    flags.add_options(result, *LIMIT_FIELDS)
    return result


def test_every_option_is_a_flag_but_those_that_solvers_set(parser: argparse.ArgumentParser) -> None:
    names = {field.name for field in fields(NetConfig)}
    assert vars(parser.parse_args([])).keys() == names - {"seed", "shard", "num_parts", "axis_name", "joins_batches"}


def test_flags_have_the_defaults_of_the_options(parser: argparse.ArgumentParser) -> None:
    options = parser.parse_args([])
    assert flags.make_config(options) == NetConfig()


def test_flags_set_the_options(parser: argparse.ArgumentParser) -> None:
    options = parser.parse_args(
        "--kernels=reference -precision bfloat16 --backward=rules --remat=auto --memory-limit=2KiB --workers=3 "
        "-skip_bad_images=true --max_image_pixels=9 --max_hdf5_bytes=1KiB --no_python_layers".split()
    )
    computes: tuple[Any, ...] = ("reference", "bfloat16", "rules", "auto", 2048)
    reads = {"workers": 3, "skip_bad": True, "max_image_pixels": 9, "max_hdf5_bytes": 1024, "no_python_layers": True}
    assert flags.make_config(options) == NetConfig(*computes, **reads)


def test_a_value_that_an_option_cannot_have_is_refused(
    parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser.parse_args(["--precision=float16"])
    assert "choose from" in capsys.readouterr().err


@pytest.fixture
def tool_parser() -> Parser:
    parser = Parser()
    flags.add_switch(parser, "gray", "")
    flags.add_switch(parser, "no_color", "")
    flags.add(parser, "size", "", type=flags.parse_count, default=0)
    flags.add(parser, "name", "")
    parser.add_argument("first")
    parser.add_argument("second", nargs="?")
    return parser


TRUE_WORDS, FALSE_WORDS = (
    ["1", "t", "T", "true", "True", "tRUE", "y", "yes", "YES"],
    ["0", "f", "F", "false", "False", "n", "No"],
)


@pytest.mark.parametrize("dashes", ["-", "--"])
def test_switches_are_read_as_gflags_reads_them(tool_parser: Parser, dashes: str) -> None:
    cases = {"gray": True, "nogray": False, "nogray=true": False}  # gflags takes no value after "no" into account
    cases |= {f"gray={value}": value in TRUE_WORDS for value in TRUE_WORDS + FALSE_WORDS}
    for text, expected in cases.items():
        for earlier_flags in ([], ["--gray"], ["--nogray"]):
            assert tool_parser.parse_args([*earlier_flags, dashes + text, "a"]).gray is expected
    assert tool_parser.parse_args([f"{dashes}no_color", "a"]).no_color
    assert not tool_parser.parse_args([f"{dashes}nono_color", "a"]).no_color
    flags.add_switch(tool_parser, "wide", "", default=None)
    for text, value in {"wide": True, "nowide": False, "wide=false": False}.items():
        assert tool_parser.parse_args([dashes + text, "a"]).wide is value
        assert tool_parser.parse_args(["a"]).wide is None
    assert (
        tool_parser.parse_args([f"{dashes}gray", "True", "a"]).first == "True"
    )  # a switch never takes the next argument


@pytest.mark.parametrize("value", ["", "2", "on", "tru", "yes "])
def test_other_values_of_switches_are_refused(
    tool_parser: Parser, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        tool_parser.parse_args([f"--gray={value}", "--nosize", "--sise=3"])
    output = capsys.readouterr().err.splitlines()[-1]
    assert f"--gray={value}: '{value}' is not true or false" in output
    assert "there is no flag --nosize" in output
    assert "there is no flag --sise; did you mean '--size'?" in output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("a --size 3 b --gray", ("a", "b", 3, None)),
        ("a -size=3 b", ("a", "b", 3, None)),
        ("--name --gray a", ("a", None, 0, "--gray")),  # the next argument is the value, whatever it is
        ("--name -1 -- --gray -b", ("--gray", "-b", 0, "-1")),
        ("a - --name=", ("a", "-", 0, "")),
        ("a -5", ("a", "-5", 0, None)),
        ("--size=2 --size 4 a", ("a", None, 4, None)),
        ("-logtostderr --log_dir logs -v 2 --minloglevel=1 --nolog_prefix a", ("a", None, 0, None)),
        ("--undefok=new,other --new --noother=3 a", ("a", None, 0, None)),
    ],
)
def test_arguments_are_divided_as_gflags_divides_them(
    tool_parser: Parser, arguments: str, expected: tuple[object, ...]
) -> None:
    options = tool_parser.parse_args(arguments.split())
    assert (options.first, options.second, options.size, options.name) == expected


def test_flag_files_are_read_where_they_are_named(
    tool_parser: Parser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inner_file, outer_file, circular_file = (tmp_path / name for name in ("inner", "outer", "bad"))
    inner_file.write_text("# sizes\n\n  --size=7\n")
    outer_file.write_text(f"-gray=T\n--flagfile={inner_file}\n--name=a b")
    options = tool_parser.parse_args(["--size=1", f"--flagfile={outer_file}", "x", "--gray=f"])
    assert (options.size, options.name, options.gray, options.first) == (7, "a b", False, "x")
    circular_file.write_text(f"--flagfile={circular_file}")
    for name, message in (
        (circular_file, "has already been read"),
        (tmp_path / "none", "cannot be read"),
        (inner_file, "is not a flag"),
    ):
        inner_file.write_text("size=7")
        with pytest.raises(SystemExit):
            tool_parser.parse_args([f"--flagfile={name}", "x"])
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["-help", "--helpfull", "--helpshort"])
def test_help_has_gflags_names(tool_parser: Parser, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exc_info:
        tool_parser.parse_args([flag])
    assert exc_info.value.code == 0
    assert "usage:" in capsys.readouterr().out


def test_flags_may_precede_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["-solver", "none.prototxt", "train"], ["--solver=none.prototxt", "--gpu=", "train"]):
        assert main(arguments) == 1
        assert "none.prototxt: no such file" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["summary", "test", "time", "gradcheck", "dump", "draw", "plan", "export", "view"])
@pytest.mark.parametrize("net", [["none.prototxt"], ["--model=none.prototxt"], ["-model_def", "none.prototxt"]])
def test_the_net_is_an_argument_or_a_flag_of_caffe(
    command: str, net: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.npz").write_bytes(b"")
    required_flags = {
        "test": ["--weights=w.npz"],
        "dump": ["--out=a.npz"],
        "draw": ["--out=a.svg"],
        "plan": ["--target=cuda:h100:1"],
        "export": ["--to=a.onnx"],
    }
    assert main([command, *required_flags.get(command, []), *net]) == 1
    assert "none.prototxt: no such file" in capsys.readouterr().err


def test_only_help_all_shows_limits(capsys: pytest.CaptureFixture[str]) -> None:
    for flag, shows_limits in ("--help", False), ("--help-all", True):
        with pytest.raises(SystemExit):
            main(["summary", flag])
        out = capsys.readouterr().out
        assert ("--max_image_pixels" in out) == shows_limits
        assert out.startswith("usage: caffejax summary NET [flags]")


def test_info_names_versions_and_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["versions"]["jax"] == jax.__version__
    assert list(facts["devices"]) == [f"{d.platform}:{d.id}" for d in jax.devices()]


def test_info_says_which_opencv_package_is_imported_if_there_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"opencv-python": "4.12.0.88", "opencv-python-headless": "5.0.0.93"}
    monkeypatch.setattr(info, "_find_version", lambda name: versions.get(name, "not installed"))
    description = info.collect_facts()["versions"]["OpenCV"]
    assert "4.12.0.88 (opencv-python)" in description
    assert "5.0.0.93 (opencv-python-headless)" in description
    assert f"cv2 is {cv2.__version__}" in description


def test_a_command_without_arguments_names_those_that_it_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["info", "net.caffemodel"])
    assert "caffejax info takes no arguments, only flags, but was given net.caffemodel" in capsys.readouterr().err
