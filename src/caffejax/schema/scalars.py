"""Conversion of prototxt tokens to the values of scalar fields, as in protobuf's text parser."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from ..errors import did_you_mean

_INTEGER = re.compile(r"0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*", re.ASCII)
_FLOAT = re.compile(r"((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fF]?", re.ASCII)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_DIGITS = 20  # the length of the largest 64-bit number
_LETTERS = {b"a": 7, b"b": 8, b"f": 12, b"n": 10, b"r": 13, b"t": 9, b"v": 11}
_LETTERS |= {quote: quote[0] for quote in (b"\\", b"?", b"'", b'"')}
_WORDS = {"inf": float("inf"), "infinity": float("inf"), "nan": float("nan")}
_TRUE = frozenset({"true", "True", "t", "1"})
_FALSE = frozenset({"false", "False", "f", "0"})

Convert = Callable[[str, bool], Any]
"""Function from a token, and whether a minus precedes it, to a value. Raises ValueError with the reason."""


def make_converter(field: FieldDescriptor) -> Convert:
    """Return a function that converts a token to a value of `field`, which is a number, a bool or an enum."""
    kind = field.cpp_type
    if kind in _RANGES:
        return lambda token, minus: _integer(token, minus, *_RANGES[kind])
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return _boolean
    if enum := field.enum_type:
        return lambda token, minus: _enum(token, minus, enum)
    return _single if kind == FieldDescriptor.CPPTYPE_FLOAT else _double


_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def _integer(token: str, minus: bool, low: int, high: int) -> int:
    if not _INTEGER.fullmatch(token):
        raise ValueError(f"expected an integer, found {_quote(token, minus)}")
    base = 10 if token[0] != "0" else 16 if token[1:2] in ("x", "X") else 8
    if base == 10 and len(token) > _DIGITS:  # int() refuses strings of thousands of digits
        raise ValueError(f"a number of {len(token)} digits is out of range: {low} to {high}")
    value = -int(token, base) if minus else int(token, base)
    if not low <= value <= high:
        shown = f"{value}" if value.bit_length() <= 128 else "the number"
        raise ValueError(f"{shown} is out of range: {low} to {high}")
    return value


def _boolean(token: str, minus: bool) -> bool:
    if minus or (token not in _TRUE and token not in _FALSE):
        raise ValueError(f"expected true or false, found {_quote(token, minus)}")
    return token in _TRUE


def _enum(token: str, minus: bool, enum: EnumDescriptor) -> int:
    if token[0].isdigit():
        number = _integer(token, minus, *_RANGES[FieldDescriptor.CPPTYPE_INT32])
        if number in enum.values_by_number:
            return number
    elif not minus and token in enum.values_by_name:
        return int(enum.values_by_name[token].number)
    hint = did_you_mean(token, enum.values_by_name) or "; known: " + ", ".join(enum.values_by_name)
    raise ValueError(f"{_quote(token, minus)} is not a value of {enum.name}{hint}")


def _double(token: str, minus: bool) -> float:
    match = _FLOAT.fullmatch(token)
    if match and not (token[0] == "0" and token.isdigit() and token.strip("0")):
        value = float(match[1])
    elif token.lower() in _WORDS:
        value = _WORDS[token.lower()]
    else:
        raise ValueError(f"expected a number, found {_quote(token, minus)}")
    return -value if minus else value


def _single(token: str, minus: bool) -> float:
    value = _double(token, minus)
    try:
        struct.pack("f", value)
    except OverflowError:  # protobuf's parser reads such numbers as infinity
        return float("-inf") if minus else float("inf")
    return value


def _quote(token: str, minus: bool) -> str:
    return f"'{'-' if minus else ''}{token}'" if token else "the end of the file"


def unquote(token: str) -> bytes:
    """Return the bytes of a quoted string token, with escapes replaced.

    Raises:
        ValueError: for an invalid escape.
    """
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
            raise ValueError(f"'{match[0].decode()}' is not a character") from None
    if letter not in _LETTERS:
        raise ValueError(f"'\\{letter.decode(errors='replace')}' is not an escape of strings")
    return bytes([_LETTERS[letter]])
