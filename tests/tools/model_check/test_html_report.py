"""The page of `caffejax check --html` is well formed and complete, and escapes the names of files and layers."""

import re
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from caffejax.cli import main
from caffejax.cli.parser import Parser
from caffejax.tools.model_check.check_report import Finding, PhaseReport, Report, WeightsReport
from caffejax.tools.model_check.html_report import render_html_report, suggest_command

HOSTILE = "<script>alert('&')</script>\"\x01"
NET = """layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "one" type: "ReLU" bottom: "ip" top: "a" } layer { name: "two" type: "TanH" bottom: "ip" top: "b" }"""


def test_every_model_has_a_section_with_a_drawing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.prototxt").write_text(NET)
    Path("bad.prototxt").write_text(NET.replace("TanH", "Unheard"))
    assert main(["check", ".", "--html=report.html", "--jobs=1"]) == 1
    page = ET.fromstring(Path("report.html").read_text().removeprefix("<!doctype html>"))
    assert page.find("body/h1").text == "1 of 2 nets loads"  # type: ignore[union-attr]
    failing_section, loading_section = page.findall("body/details")
    text = "".join(failing_section.itertext())
    assert "bad.prototxt" in text
    assert "unknown layer type 'Unheard'" in text
    assert failing_section.get("open") is not None
    positions = {rect[0].text: (rect.get("x"), rect.get("y")) for rect in loading_section.iter("rect")}
    assert len(positions) == 4
    assert (
        positions["one (ReLU)"][0] == positions["two (TanH)"][0] != positions["ip (InnerProduct)"][0]
    )  # read the same layer


def test_names_are_escaped() -> None:
    finding = Finding("shape", HOSTILE, (HOSTILE,))
    weights = WeightsReport(HOSTILE, 1, (finding,), (HOSTILE,))
    phase = PhaseReport(HOSTILE, "fails", (finding,), (HOSTILE,), 1, (HOSTILE,), weights=(weights,))
    page = render_html_report([Report(HOSTILE, "net", (finding,), (phase,), (HOSTILE,))], HOSTILE, {HOSTILE: HOSTILE})
    assert "<script" not in page
    assert page.count("&lt;script&gt;") > 8


@pytest.mark.parametrize(
    ("report", "command"),
    [
        (Report("a b.prototxt", "solver"), "caffejax train --solver='a b.prototxt'"),
        (Report("n", "net", phases=(PhaseReport("TEST", "loads"),)), "caffejax summary n"),
        (
            Report("n", "net", phases=(PhaseReport("TEST", "loads", weights=(WeightsReport("w", 3),)),)),
            "caffejax predict n IMAGE --weights=w",
        ),
        (Report("n", "net", (Finding("type", "unknown"),)), "caffejax check n --import=MODULE_WITH_THE_LAYERS"),
        (Report("n", "net", (Finding("text", "line 3"),)), "caffejax view n"),
    ],
)
def test_the_suggested_command_exists(report: Report, command: str) -> None:
    from caffejax import cli

    assert suggest_command(report) == command
    program, name, *_ = shlex.split(command)
    parser: Parser = cli.make_parser()
    assert program == "caffejax"
    assert name in parser.subparsers
    assert all(re.match("--(solver|weights|import)=", word) for word in command.split() if word.startswith("--"))


def test_no_command_is_suggested_for_other_files() -> None:
    report = Report("page.prototxt", "unreadable", (Finding("text", "this is an HTML page"),))
    assert suggest_command(report) is None
    assert "Next:" not in render_html_report([report], "")
    assert suggest_command(Report("labels.prototxt", "other")) is None


def test_a_file_that_ended_a_worker_process_is_not_read_again(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(NET)
    file = str(tmp_path / "net.prototxt")
    assert "<rect" in render_html_report([Report(file, "net")], "1 of 1 net loads")
    assert "<rect" not in render_html_report(
        [Report(file, "net", (Finding("crash", "it crashed"),))], "0 of 1 net loads"
    )
