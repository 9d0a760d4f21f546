"""Tokens of a prototxt, and a cursor that walks over them and notes problems."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from typing import NoReturn

from ..errors import Problem

# A number takes every letter and dot that touches it, so that `3x` is one wrong number and not two tokens.
_TOKEN = re.compile(
    r"""\#[^\n]* | (
        [A-Za-z_]\w*
      | \.?\d (?: [eE][+-] | [\w.] )*
      | "(?: [^"\\\n] | \\. )*" | '(?: [^'\\\n] | \\. )*'
      | \S
    )""",
    re.VERBOSE | re.ASCII,
)

END = ""


class Tokens(list[str]):
    """The tokens of a text without comments, followed by `END`."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(token for token in _TOKEN.findall(text) if token)
        self.append(END)

    def position(self, index: int) -> tuple[int, int]:
        """Return the 1-based line and column of the token at `index`; of the text's end for `END`."""
        starts, lines = self._starts
        offset = starts[index] if index < len(starts) else len(self.text.rstrip())
        line = bisect_right(lines, offset)
        return line, offset - lines[line - 1] + 1

    @cached_property
    def _starts(self) -> tuple[list[int], list[int]]:
        """Offsets of tokens and lines, computed only for texts with problems."""
        tokens = [match.start(1) for match in _TOKEN.finditer(self.text) if match[1]]
        return tokens, [0, *(match.end() for match in re.finditer("\n", self.text))]


CLOSING = {"{": "}", "<": ">", "[": "]"}


class GiveUpError(Exception):
    """Raised where the structure of the text is lost; the problem is noted already."""


class Cursor:
    """A position in a text. `at` is the index of the next token; `problems` are the problems noted so far."""

    def __init__(self, text: str, file: str | None) -> None:
        self.tokens = Tokens(text)
        self.file = file
        self.at = 0
        self.problems: list[Problem] = []

    def skip_value(self) -> None:
        """Skip `: value`, `{...}` or `: [...]`, whatever is in it."""
        tokens = self.tokens
        colon = tokens[self.at] == ":"
        self.at += colon
        token = tokens[self.at]
        if token in CLOSING:
            self.skip_nested()
        elif token[:1] in ('"', "'") and len(token) > 1:
            while tokens[self.at][:1] in ('"', "'"):
                self.at += 1
        else:
            self.at += token == "-"
            token = tokens[self.at]
            if not (token[:1].isalnum() or token[:1] in ("_", ".")):
                self.give_up(self.at, f"expected a value, found {self.quote(self.at)}")
            self.at += 1

    def skip_nested(self) -> None:
        """Skip from an opening bracket past the one that closes it."""
        tokens, stack = self.tokens, [CLOSING[self.tokens[self.at]]]
        while stack:
            self.at += 1
            token = tokens[self.at]
            if token == stack[-1]:
                stack.pop()
            elif token in CLOSING:
                stack.append(CLOSING[token])
            elif token == END or token in CLOSING.values():
                self.give_up(self.at, f"expected '{stack[-1]}', found {self.quote(self.at)}")
        self.at += 1

    def expect(self, token: str) -> None:
        """Go past a token; give up unless it is this one."""
        if self.tokens[self.at] != token:
            self.give_up(self.at, f"expected '{token}', found {self.quote(self.at)}")
        self.at += 1

    def quote(self, index: int) -> str:
        """Return a token in the form for messages."""
        token = self.tokens[index]
        if token == "-":
            token += self.tokens[index + 1]
        if token in ('"', "'"):
            return "a string without end"
        printable = token.encode(errors="backslashreplace").decode()
        return f"'{printable if len(token) < 60 else printable[:60] + '...'}'" if token else "the end of the text"

    def problem_at(self, index: int, message: str) -> Problem:
        """Return a problem at a token's line and column."""
        line, column = self.tokens.position(index)
        return Problem(message, self.file, line, column)

    def note(self, index: int, message: str) -> None:
        """Note a problem at a token."""
        self.problems.append(self.problem_at(index, message))

    def give_up(self, index: int, message: str) -> NoReturn:
        """Note a problem at a token, and raise `GiveUpError`."""
        self.note(index, message)
        raise GiveUpError
