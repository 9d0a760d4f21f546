"""Run the code blocks of a page of the documentation."""

import doctest
import os
import re
import shlex
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

from caffejax.cli import main

REPOSITORY = Path(__file__).parents[2]

_FENCE = re.compile(r'^```(console|python|\w+ title="([\w.]+)")\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_ERROR = re.compile(r"caffejax( \w+)?: ")
_CHECKER = doctest.OutputChecker()
_CHECK_OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_page(page: str, capsys: pytest.CaptureFixture[str], skipped_commands: Container[str] = ()) -> None:
    """Run a page's blocks in the working directory, except commands that have run already.

    The output of a console block is compared if the page shows it; ... stands for any text. If the output is an error,
    the command must fail with it. Python blocks share names. A block with a title is a file.
    """
    for name in ("configs", "docs", "scripts", "tests"):
        os.symlink(REPOSITORY / name, name)
    names: dict[str, object] = {"__name__": "page"}
    num_blocks = 0
    for block_type, file, block in _FENCE.findall((REPOSITORY / "docs" / page).read_text()):
        if file:
            Path(file).write_text(block)
        elif block_type == "python":
            exec(compile(block, page, "exec"), names)
            num_blocks += 1
        else:
            for command, output in _split_commands(block):
                if command not in skipped_commands:
                    _run_command(page, command, output, capsys)
                num_blocks += 1
    assert num_blocks


def _run_command(page: str, command: str, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, *arguments = shlex.split(command)
    assert program == "caffejax", f"{page}: {command}"
    capsys.readouterr()
    code = _run_main(arguments)
    stdout, stderr = capsys.readouterr()
    fails = bool(_ERROR.match(output))
    assert (code != 0) == fails, f"{page}: {command}\n{stderr}"
    if fails:
        stdout = "\n".join(line for line in stderr.splitlines() if _ERROR.match(line))
    assert not output.strip() or _CHECKER.check_output(output, stdout, _CHECK_OPTIONS), (
        f"{page}: {command}\n{stdout}\ndiffers from\n{output}"
    )


def _split_commands(block: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output that follows it."""
    for part in re.split(r"^\$ ", block.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def _run_main(arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as exit_error:  # for a mistake in the command
        return int(exit_error.code or 0)
