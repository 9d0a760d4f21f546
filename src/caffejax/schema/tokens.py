"""The tokenizer of prototxt. Quick: one regular expression, and positions only when asked for."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property

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
    """The tokens of a text, comments left out, and `END` at the end."""

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
        """Where tokens and lines start. Only texts with problems pay for it."""
        tokens = [match.start(1) for match in _TOKEN.finditer(self.text) if match[1]]
        return tokens, [0, *(match.end() for match in re.finditer("\n", self.text))]
