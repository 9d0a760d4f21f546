"""An argument parser that reports unknown flags before missing ones, and lists each flag once, with its default."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import did_you_mean

_NUMBER = re.compile(r"-(\d|\.\d)")


class Help(argparse.HelpFormatter):
    """Help formatter that shows one spelling of each flag, and the default unless it is None, a boolean or empty."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, **{"max_help_position": 33, **options})

    def _format_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any) -> str:
        if any(action.nargs == argparse.REMAINDER for action in actions):  # flags precede the remaining arguments
            return super()._format_usage(usage, actions, groups, prefix)
        needed = [action for action in actions if action.required or not action.option_strings]
        return super()._format_usage(usage, needed, [], prefix).rstrip() + " [flags]\n\n"

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        flag = max(action.option_strings[:2], key=len)  # -h, --help; the others begin with --name, -name
        return flag if action.nargs == 0 else f"{flag} {self._format_args(action, action.dest.upper())}"

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help or ""
        plain = not action.option_strings or isinstance(action.default, bool) or "%(default)" in text
        if action.default in (None, "", (), argparse.SUPPRESS) or plain:
            return text
        return f"{text} (default: %(default)s)"


class Parser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` that reports all unknown flags at once; its subparsers have the same class."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"formatter_class": Help, **options})
        self._optionals.title = "flags"
        self.of_commands: dict[str, Parser] = {}

    @property
    def spellings(self) -> set[str]:
        """The spellings of all flags, such as "--gpu" and "-gpu"."""
        return {spelling for action in self._actions for spelling in action.option_strings}

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments. Unknown commands and flags are reported before missing arguments."""
        if args is not None:
            problems = list(self._problems(list(args)))
            if problems:
                self.error("; ".join(problems))
        return super().parse_known_args(args, namespace)

    def _problems(self, arguments: Sequence[str]) -> Iterable[str]:
        words = [a for a in arguments if not a.startswith("-")]
        if self.of_commands:
            if words and words[0] not in self.of_commands:
                yield f"there is no command '{words[0]}'{did_you_mean(words[0], self.of_commands)}"
            return
        rest = any(action.nargs == argparse.REMAINDER for action in self._actions)  # arguments of another program
        for argument in arguments:
            if argument == "--" or (rest and not argument.startswith("-")):
                return
            flag = argument.partition("=")[0]
            if len(flag) > 1 and flag.startswith("-") and not _NUMBER.match(flag) and not self._has(argument):
                visible = [name for name in self.spellings if name.startswith("--") and "=" not in name]
                yield f"there is no flag {flag}{did_you_mean(flag, visible)}"

    def _has(self, argument: str) -> bool:
        return not self.spellings.isdisjoint((argument, argument.partition("=")[0]))
