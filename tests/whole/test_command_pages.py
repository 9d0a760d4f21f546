"""The pages on commands: each command in them runs as it stands there, and prints what the page says."""

import doctest
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from caffejax.cli import main

REPOSITORY = Path(__file__).parents[2]
PAGES = ("summary.md", "exporting.md", "exporting_onnx.md")

_FENCE = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CHECKER = doctest.OutputChecker()
_LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def commands(block: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output that follows it."""
    for part in re.split(r"^\$ ", block.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A console block's output is compared where it is given, with ... for what differs; Python blocks share names."""
    monkeypatch.chdir(tmp_path)
    for name in ("configs", "scripts", "tests"):
        os.symlink(REPOSITORY / name, name)
    names: dict[str, object] = {"__name__": "page"}
    ran = 0
    for kind, block in _FENCE.findall((REPOSITORY / "docs" / page).read_text()):
        if kind == "python":
            exec(compile(block, page, "exec"), names)
            ran += 1
            continue
        for command, output in commands(block):
            program, *arguments = shlex.split(command)
            assert program == "caffejax", f"{page}: {command}"
            capsys.readouterr()
            assert main(arguments) == 0, f"{page}: {command}"
            printed = capsys.readouterr().out
            assert not output.strip() or _CHECKER.check_output(output, printed, _LOOSE), (
                f"{page}: {command}\n{printed}\ndiffers from\n{output}"
            )
            ran += 1
    assert ran
