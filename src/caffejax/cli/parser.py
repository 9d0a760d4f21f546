"""A parser whose errors name the mistake first: a command or a flag that does not exist, with the nearest that does."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import did_you_mean

_NUMBER = re.compile(r"-(\d|\.\d)")


class Parser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` of this kind; its subparsers are, too."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._flags: set[str] = {"-h", "--help"}
        self.commands: Sequence[str] = ()

    def add_argument(self, *names: Any, **options: Any) -> Any:
        """Add an argument, as argparse does."""
        if hasattr(self, "_flags"):
            self._flags.update(name for name in names if name.startswith("-"))
        return super().add_argument(*names, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments; end with what does not exist before anything that is missing is said."""
        if args is not None:
            problems = list(self._problems(list(args)))
            if problems:
                self.error("; ".join(problems))
        return super().parse_known_args(args, namespace)

    def _problems(self, arguments: Sequence[str]) -> Iterable[str]:
        words = [a for a in arguments if not a.startswith("-")]
        if self.commands:
            if words and words[0] not in self.commands:
                yield f"there is no command '{words[0]}'{did_you_mean(words[0], self.commands)}"
            return
        for argument in arguments:
            if argument == "--":
                return
            flag = argument.partition("=")[0]
            if len(flag) > 1 and flag.startswith("-") and not _NUMBER.match(flag) and not self._has(argument):
                visible = [name for name in self._flags if name.startswith("--") and "=" not in name]
                yield f"there is no flag {flag}{did_you_mean(flag, visible)}"

    def _has(self, argument: str) -> bool:
        return argument in self._flags or argument.partition("=")[0] in self._flags
