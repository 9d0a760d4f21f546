"""Write docs/commands.md, the reference of the command line, from the commands' own parsers.

python scripts/make_command_page.py            # writes the page
python scripts/make_command_page.py --check    # fails if it is out of date
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from page_writer import write_or_check

from caffejax import cli
from caffejax.cli.parser import HelpFormatter, Parser

PAGE = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
INTRO = """# The commands

`caffejax COMMAND --help` prints what stands here. Flags may be written with one dash or two, and with `_` or `-`
between words; `--flag=value` and `--flag value` are the same. The exit code is 0 for success, 1 for an error in what is
read, 2 for a mistake in the command, 130 after Ctrl-C. `caffejax train` that a signal stops after a snapshot ends with
0, as in Caffe ([snapshots](snapshots.md#stopping)). This page is made by `scripts/make_command_page.py`.
"""


def make_page() -> str:
    """Return the page."""
    parser = cli.make_parser()
    parts = [INTRO]
    for title, commands in (*cli._COMMANDS_BY_TASK.items(), ("Caffe's other tools", cli._CAFFE_TOOLS)):
        parts.append(f"## {title[0].upper()}{title[1:]}\n")
        parts += [_make_section(name, parser.subparsers[name]) for name in map(cli._get_name, commands)]
    return "\n".join(parts)


def _make_section(name: str, parser: Parser) -> str:
    usage = parser.format_usage().removeprefix("usage: ").strip()
    lines = [f"### {name}\n", f"    {usage}\n", f"{(parser.description or '').strip()}\n"]
    lines += ["| | |", "|---|---|", *_flag_rows(parser), ""]
    return "\n".join([*lines, f"Example: `{(parser.epilog or '').removeprefix('example: ')}`\n"])


def _flag_rows(parser: Parser) -> Iterator[str]:
    formatter = HelpFormatter("caffejax")
    for group in parser._action_groups:
        for action in group._group_actions:
            if not isinstance(action, argparse._HelpAction):
                text = formatter._expand_help(action) if action.help else ""
                invocation = formatter._format_action_invocation(action).replace("|", "\\|")
                yield f"| `{invocation}` | {text.replace('|', chr(92) + '|').replace('<', '&lt;')} |"


if __name__ == "__main__":
    sys.exit(write_or_check(lambda: {PAGE: make_page()}, __doc__))
