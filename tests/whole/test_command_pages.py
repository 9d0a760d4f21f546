"""The pages with commands and code: each block runs as it stands there, and prints what the page says."""

import doctest
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from caffejax.cli import main

REPOSITORY = Path(__file__).parents[2]
ELSEWHERE = {  # pages with tests of their own, in test_docs.py
    *("adding_a_layer", "comparing", "exporting_flax", "inference", "jax", "own_data", "python", "python_layers"),
    *("weights", "accelerators", "scaling"),  # of the last two: their code needs a compiler for GPUs, and devices
}
PAGES = sorted(
    page.name
    for page in (REPOSITORY / "docs").glob("*.md")
    if page.stem not in ELSEWHERE and re.search("^```(console|python)$", page.read_text(), re.MULTILINE)
)

_FENCE = re.compile(r'^```(console|python|\w+ title="([\w.]+)")\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_ERROR = re.compile(r"caffejax( \w+)?: ")
_CHECKER = doctest.OutputChecker()
_LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def commands(block: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output that follows it."""
    for part in re.split(r"^\$ ", block.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def exit_code(arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as stop:  # for a mistake in the command
        return int(stop.code or 0)


def test_every_page_with_code_is_run() -> None:
    tests = (REPOSITORY / "tests" / "whole" / "test_docs.py").read_text()
    assert {page for page in ELSEWHERE if f"{page}.md" not in tests} == {"accelerators", "scaling"}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A console block's output is compared where it is given, with ... for what differs; Python blocks share names.

    Where the output is an error, the command fails with it. A block with a title is a file.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("configs", "scripts", "tests"):
        os.symlink(REPOSITORY / name, name)
    names: dict[str, object] = {"__name__": "page"}
    ran = 0
    for kind, file, block in _FENCE.findall((REPOSITORY / "docs" / page).read_text()):
        if file:
            Path(file).write_text(block)
            continue
        if kind == "python":
            exec(compile(block, page, "exec"), names)
            ran += 1
            continue
        for command, output in commands(block):
            program, *arguments = shlex.split(command)
            assert program == "caffejax", f"{page}: {command}"
            capsys.readouterr()
            code = exit_code(arguments)
            printed, said = capsys.readouterr()
            fails = bool(_ERROR.match(output))
            assert (code != 0) == fails, f"{page}: {command}\n{said}"
            if fails:
                printed = "\n".join(line for line in said.splitlines() if _ERROR.match(line))
            assert not output.strip() or _CHECKER.check_output(output, printed, _LOOSE), (
                f"{page}: {command}\n{printed}\ndiffers from\n{output}"
            )
            ran += 1
    assert ran


def test_messages_that_are_told_of_without_being_made_are_there() -> None:
    """Those in tables of the page on errors, with ... for what differs."""
    told = re.findall(r"^\| `([^`]+)` \| ", (REPOSITORY / "docs" / "errors.md").read_text(), re.MULTILINE)
    messages = [message for message in told if " " in message]
    assert len(messages) > 5
    source = "".join(path.read_text() for path in (REPOSITORY / "src").rglob("*.py"))
    source = re.sub(r'"\s*\n\s*f?"', "", source)  # strings in parts
    assert [part for message in messages for part in message.split("...") if part not in source] == []
