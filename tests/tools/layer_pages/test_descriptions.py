"""Each setting of each layer type has a meaning, and `caffejax layers` prints it."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from caffejax import declare, register_temporarily
from caffejax.cli import main
from caffejax.core.layers import LayerType, layer_types
from caffejax.core.schema import caffe_pb2, fork_fields
from caffejax.tools.layer_pages import descriptions
from caffejax.tools.layer_pages.descriptions import SHARED_MESSAGES

TYPES = [v for t in layer_types().values() for v in (descriptions.list_variants(t) or {"": t}).values()]


def find_problems(settings: list[descriptions.Setting]) -> list[str]:
    """Return the settings whose description is missing, repeats the name, or does not fit on a line of a table."""
    result = []
    for s in settings:
        words, name = re.findall(r"\w+", s.meaning.lower()), s.name.rpartition(".")[2]
        is_informative = (
            len(words) > 1 and "_".join(words) != name and not re.search(r"todo|fixme|\?\?", s.meaning.lower())
        )
        if not is_informative or len(s.meaning) > 118 or s.meaning.endswith("."):
            result.append(f"{s.name}: {s.meaning!r}")
    return result


@pytest.mark.parametrize("t", TYPES, ids=lambda t: t.name)
def test_each_setting_of_a_type_has_a_meaning(t: LayerType) -> None:
    for param in descriptions.list_param_fields(t):
        assert find_problems(descriptions.list_settings(t, param)) == [], param


@pytest.mark.parametrize("name", SHARED_MESSAGES)
def test_each_setting_of_a_shared_message_has_a_meaning(name: str) -> None:
    settings = descriptions.list_message_settings(name)
    assert find_problems(settings) == []
    assert {*fork_fields._SUPPORTED_FIELDS.get(name, ())} <= {s.name for s in settings}


def test_each_field_comment_belongs_to_a_field() -> None:
    """A comment above a line that the parser does not recognise as a field would be lost."""
    for message, fields in descriptions.read_field_comments().items():
        descriptor = caffe_pb2.DESCRIPTOR.pool.FindMessageTypeByName(message)
        assert {*fields} <= {*descriptor.fields_by_name}, message
    assert sum(map(len, descriptions.read_field_comments().values())) > 1000


def test_a_type_without_a_docstring_is_said_to_have_no_description(capsys: pytest.CaptureFixture[str]) -> None:
    def same(x: Any) -> Any:
        return x

    def documented(x: Any) -> Any:
        """Return the bottom."""
        return x

    for forward, text in (
        (same, "No description: the function that computes it has no docstring."),
        (documented, "Ret"),
    ):
        with register_temporarily(declare("Same")(forward)):
            assert main(["layers", "Same"]) == 0
        assert capsys.readouterr().out.startswith(f"Same\n\n{text}")


def test_the_command_prints_meanings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layers", "Pooling", "FillerParameter"]) == 0
    out = capsys.readouterr().out
    assert "Number of bottoms: 1; of tops: 1 to 2; gradient: three ways." in out
    assert re.search(r"kernel_size \(int\)\n +side of the window", out)
    assert re.search(r"std \(float; default: 1\)\n +of gaussian: standard deviation", out)
    assert main(["layers"]) == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} >= {"Pooling", "YoloSeg", "Data"}


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layers", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert {value["name"] for value in entries} == set(layer_types())
    assert main(["layers", "--json", "Pooling", "FillerParameter"]) == 0
    pooling, filler = json.loads(capsys.readouterr().out)
    (kernel_size,) = [s for s in pooling["settings"]["pooling_param"] if s["name"] == "kernel_size"]
    assert (kernel_size["kind"], kernel_size["repeated"]) == ("int", False)
    assert kernel_size["meaning"].startswith("side of the window")
    assert [s["default"] for s in filler["settings"]["FillerParameter"] if s["name"] == "std"] == ["1"]


@dataclass
class GainSettings:
    """Settings of a user's type."""

    beta: float = 1.5
    sizes: Sequence[int] = ()
    mode: str = "sum"


def test_settings_of_a_dataclass_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    own = declare("Own", param="python_param", settings=GainSettings)(lambda p, x: p.beta * x)
    with register_temporarily(own):
        assert main(["layers", "Own"]) == 0
        out = capsys.readouterr().out
        assert main(["layers", "Own", "--json"]) == 0
    expected = "  beta (float; default: 1.5)\n  sizes (collections.abc.Sequence[int]; default: ())\n"
    assert f"\nparam_str:\n{expected}  mode (str; default: 'sum')\n" in out
    assert "module" not in out, "python_param's other fields mean nothing to the type"
    (entry,) = json.loads(capsys.readouterr().out)
    assert [s["name"] for s in entry["settings"]["param_str"]] == ["beta", "sizes", "mode"]


def test_the_command_suggests_a_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layers", "Poolin"]) == 1
    assert "Pooling" in capsys.readouterr().err
