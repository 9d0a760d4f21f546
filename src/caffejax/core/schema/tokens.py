"""Tokens of a prototxt, and a cursor over them that records problems."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import NoReturn

from ...base.errors import Problem

# A number includes adjacent letters and dots, so that `3x` is one invalid number instead of two tokens.
_TOKEN = re.compile(
    r"""\#[^\n]* | (
        [A-Za-z_]\w*
      | \.?\d (?: [eE][+-] | [\w.] )*
      | "(?: [^"\\\n] | \\. )*" | '(?: [^'\\\n] | \\. )*'
      | \S
    )""",
    re.VERBOSE | re.ASCII,
)

_BARE_WORD = re.compile(r"(?=[\d.]*[A-Za-z_/~\\])[\w./~\\](?:[\w./\\~+*$%@()-]|:(?!\s|$)|=[^\s}]*)*", re.ASCII)

END = ""


class Tokens(list[str]):
    """The tokens of a text, without comments and followed by `END`."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(token for token in _TOKEN.findall(text) if token)
        self.append(END)

    def read_bare_word(self, index: int) -> tuple[str, int]:
        """Return the unquoted word from the token at `index` up to the next space, and the index of the token after it.

        The word is "" if the token does not begin one.
        """
        starts, _ = self._offsets
        match = _BARE_WORD.match(self.text, starts[index]) if index < len(starts) else None
        return (match[0], bisect_left(starts, match.end())) if match else ("", index)

    def find_line_and_column(self, index: int) -> tuple[int, int]:
        """Return the 1-based line and column of the token at `index`. `END` is at the end of the text."""
        starts, lines = self._offsets
        offset = starts[index] if index < len(starts) else len(self.text.rstrip())
        line = bisect_right(lines, offset)
        return line, offset - lines[line - 1] + 1

    @cached_property
    def _offsets(self) -> tuple[list[int], list[int]]:
        """The offsets of tokens and of lines, which are needed only for problems and unquoted words."""
        tokens = [match.start(1) for match in _TOKEN.finditer(self.text) if match[1]]
        return tokens, [0, *(match.end() for match in re.finditer("\n", self.text))]


CLOSING = {"{": "}", "<": ">", "[": "]"}


class GiveUpError(Exception):
    """Raised if the parser cannot follow the structure of the text. The problem is already recorded."""


class Cursor:
    """A position in a text.

    Attributes:
        tokens: the tokens of the text.
        file: the file's name for messages, or None.
        position: the index of the next token.
        problems: the problems recorded so far.
    """

    def __init__(self, text: str, file: str | None) -> None:
        self.tokens = Tokens(text)
        self.file = file
        self.position = 0
        self.problems: list[Problem] = []

    def skip_value(self) -> None:
        """Skip a value of any kind: `: value`, `{...}` or `: [...]`."""
        tokens = self.tokens
        colon = tokens[self.position] == ":"
        self.position += colon
        token = tokens[self.position]
        if token in CLOSING:
            self.skip_nested()
        elif token[:1] in ('"', "'") and len(token) > 1:
            while tokens[self.position][:1] in ('"', "'"):
                self.position += 1
        else:
            self.position += token == "-"
            token = tokens[self.position]
            if not (token[:1].isalnum() or token[:1] in ("_", ".")):
                self.give_up(self.position, f"expected a value, found {self.quote(self.position)}")
            self.position += 1

    def skip_nested(self) -> None:
        """Skip from an opening bracket to the token after its closing bracket."""
        tokens, stack = self.tokens, [CLOSING[self.tokens[self.position]]]
        while stack:
            self.position += 1
            token = tokens[self.position]
            if token == stack[-1]:
                stack.pop()
            elif token in CLOSING:
                stack.append(CLOSING[token])
            elif token == END or token in CLOSING.values():
                self.give_up(self.position, f"expected '{stack[-1]}', found {self.quote(self.position)}")
        self.position += 1

    def expect(self, token: str) -> None:
        """Advance past the given token. If the next token differs, record a problem and raise `GiveUpError`."""
        if self.tokens[self.position] != token:
            self.give_up(self.position, f"expected '{token}', found {self.quote(self.position)}")
        self.position += 1

    def quote(self, index: int) -> str:
        """Return the token at `index` in quotes for a message, shortened to 60 characters."""
        token = self.tokens[index]
        if token == "-":
            token += self.tokens[index + 1]
        if token in ('"', "'"):
            return "an unclosed string"
        printable = token.encode(errors="backslashreplace").decode()
        return f"'{printable if len(token) < 60 else printable[:60] + '...'}'" if token else "the end of the text"

    def make_problem(self, index: int, message: str) -> Problem:
        """Return a problem with the line and column of the token at `index`."""
        line, column = self.tokens.find_line_and_column(index)
        return Problem(message, self.file, line, column)

    def add_problem(self, index: int, message: str) -> None:
        """Record a problem at the token with the given index."""
        self.problems.append(self.make_problem(index, message))

    def give_up(self, index: int, message: str) -> NoReturn:
        """Record a problem at the token with the given index, and raise `GiveUpError`."""
        self.add_problem(index, message)
        raise GiveUpError
