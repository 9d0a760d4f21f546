"""Tokens of a prototxt, and the values that they stand for."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from ...base.errors import did_you_mean

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
_INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(  # a number that is not octal, with the suffix f in some files; or a word
    r"(-?(?!0+[1-9][0-9]*$)(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)f?|-?(?:inf|infinity|nan)", re.ASCII | re.I
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_MAX_DIGITS = 20  # the length of the largest 64-bit number
_ESCAPES = {b"a": 7, b"b": 8, b"f": 12, b"n": 10, b"r": 13, b"t": 9, b"v": 11}
_ESCAPES |= {quote: quote[0] for quote in (b"\\", b"?", b"'", b'"')}
_BOOLEANS = {**dict.fromkeys(("true", "True", "t", "1"), True), **dict.fromkeys(("false", "False", "f", "0"), False)}
_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}

END = ""
CLOSING = {"{": "}", "<": ">", "[": "]"}


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


def make_converter(field: FieldDescriptor) -> Callable[[str], Any]:
    """Return a function that converts a token, with its minus, to a value, or raises `ValueError` with the reason."""
    if field.cpp_type in _RANGES:
        return partial(_parse_integer, limits=_RANGES[field.cpp_type])
    if field.enum_type:
        return partial(_parse_enum, enum=field.enum_type)
    return _parse_boolean if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL else _parse_float


def _parse_integer(text: str, limits: tuple[int, int]) -> int:
    low, high = limits
    match = _INTEGER.fullmatch(text)
    if not match:
        raise ValueError(f"expected an integer, found '{text}'")
    digits = match[1]
    base = 10 if digits[0] != "0" else 16 if digits[1:2] in ("x", "X") else 8
    if base == 10 and len(digits) > _MAX_DIGITS:  # int() refuses strings of thousands of digits
        raise ValueError(f"a number of {len(digits)} digits is out of range: {low} to {high}")
    value = int(text, base)
    if not low <= value <= high:
        number = f"{value}" if value.bit_length() <= 128 else "the number"
        raise ValueError(f"{number} is out of range: {low} to {high}")
    return value


def _parse_boolean(text: str) -> bool:
    if text not in _BOOLEANS:
        raise ValueError(f"expected true or false, found '{text}'")
    return _BOOLEANS[text]


def _parse_enum(text: str, enum: EnumDescriptor) -> int:
    if text in enum.values_by_name:
        return int(enum.values_by_name[text].number)
    if text.lstrip("-")[0].isdigit():
        number = _parse_integer(text, _RANGES[FieldDescriptor.CPPTYPE_INT32])
        if number in enum.values_by_number:
            return number
    hint = did_you_mean(text.lstrip("-"), enum.values_by_name) or "; known: " + ", ".join(enum.values_by_name)
    raise ValueError(f"'{text}' is not a value of {enum.name}{hint}")


def _parse_float(text: str) -> float:
    match = _FLOAT.fullmatch(text)
    if not match:
        raise ValueError(f"expected a number, found '{text}'")
    return float(match[1] or text)  # protobuf stores numbers beyond float32 as infinity, as its parser does


def unquote(token: str) -> bytes:
    """Return the bytes of a quoted string token, with escapes replaced."""
    body = token[1:-1].encode("utf-8", "surrogateescape")
    return _ESCAPE.sub(_unescape, body) if b"\\" in body else body


def _unescape(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, letter = match.groups()
    if octal or hexadecimal:
        return bytes([int(octal, 8) & 255 if octal else int(hexadecimal, 16)])
    if short or long:
        try:
            return chr(int(short or long, 16)).encode()
        except (ValueError, OverflowError):  # a surrogate, or larger than the last code point
            raise ValueError(f"'{match[0].decode()}' is not a valid escape: there is no such character") from None
    if letter not in _ESCAPES:
        raise ValueError(f"'\\{letter.decode(errors='replace')}' is not a valid escape sequence")
    return bytes([_ESCAPES[letter]])
