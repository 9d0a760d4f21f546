"""The parser and the printer of prototxt, protobuf's text format.

Google's parser stops at the first unknown name. A net from an unknown fork has many unknown names, so this parser
records a problem, skips the value and continues: the user sees all problems at once. It stops only if it cannot follow
the structure of the text. A layer inside a layer is a sign of a missing brace, and is read as the next layer.
"""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from ...base.errors import Problem, SchemaError, did_you_mean
from ...base.glog import warn_once
from ...base.human_readable import format_list
from ...base.paths import decode_string
from .tokens import CLOSING, END, Cursor, GiveUpError

_INTEGER = re.compile(r"0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*", re.ASCII)
_FLOAT = re.compile(r"((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fF]?", re.ASCII)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_MAX_DIGITS = 20  # the length of the largest 64-bit number
_ESCAPES = {b"a": 7, b"b": 8, b"f": 12, b"n": 10, b"r": 13, b"t": 9, b"v": 11}
_ESCAPES |= {quote: quote[0] for quote in (b"\\", b"?", b"'", b'"')}
_SPECIAL_FLOATS = {"inf": float("inf"), "infinity": float("inf"), "nan": float("nan")}
_TRUE = frozenset({"true", "True", "t", "1"})
_FALSE = frozenset({"false", "False", "f", "0"})

Convert = Callable[[str, bool], Any]
"""A function that converts a token to a value. Its second argument is whether a minus precedes the token.

It raises ValueError with the reason if the token is not valid.
"""


def make_converter(field: FieldDescriptor) -> Convert:
    """Return a function that converts a token to a value of `field`, which is a number, a bool or an enum."""
    cpp_type = field.cpp_type
    if cpp_type in _RANGES:
        return lambda token, is_negative: _parse_integer(token, is_negative, *_RANGES[cpp_type])
    if cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return _parse_boolean
    if enum := field.enum_type:
        return lambda token, is_negative: _parse_enum(token, is_negative, enum)
    return _parse_float32 if cpp_type == FieldDescriptor.CPPTYPE_FLOAT else _parse_float64


_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def _parse_integer(token: str, is_negative: bool, low: int, high: int) -> int:
    if not _INTEGER.fullmatch(token):
        raise ValueError(f"expected an integer, found {_quote(token, is_negative)}")
    base = 10 if token[0] != "0" else 16 if token[1:2] in ("x", "X") else 8
    if base == 10 and len(token) > _MAX_DIGITS:  # int() refuses strings of thousands of digits
        raise ValueError(f"a number of {len(token)} digits is out of range: {low} to {high}")
    value = -int(token, base) if is_negative else int(token, base)
    if not low <= value <= high:
        digits = f"{value}" if value.bit_length() <= 128 else "the number"
        raise ValueError(f"{digits} is out of range: {low} to {high}")
    return value


def _parse_boolean(token: str, is_negative: bool) -> bool:
    if is_negative or (token not in _TRUE and token not in _FALSE):
        raise ValueError(f"expected true or false, found {_quote(token, is_negative)}")
    return token in _TRUE


def _parse_enum(token: str, is_negative: bool, enum: EnumDescriptor) -> int:
    if token[0].isdigit():
        number = _parse_integer(token, is_negative, *_RANGES[FieldDescriptor.CPPTYPE_INT32])
        if number in enum.values_by_number:
            return number
    elif not is_negative and token in enum.values_by_name:
        return int(enum.values_by_name[token].number)
    hint = did_you_mean(token, enum.values_by_name) or "; known: " + ", ".join(enum.values_by_name)
    raise ValueError(f"{_quote(token, is_negative)} is not a value of {enum.name}{hint}")


def _parse_float64(token: str, is_negative: bool) -> float:
    match = _FLOAT.fullmatch(token)
    if match and not (token[0] == "0" and token.isdigit() and token.strip("0")):
        value = float(match[1])
    elif token.lower() in _SPECIAL_FLOATS:
        value = _SPECIAL_FLOATS[token.lower()]
    else:
        raise ValueError(f"expected a number, found {_quote(token, is_negative)}")
    return -value if is_negative else value


def _parse_float32(token: str, is_negative: bool) -> float:
    value = _parse_float64(token, is_negative)
    try:
        struct.pack("f", value)
    except OverflowError:  # protobuf's parser reads such numbers as infinity
        return float("-inf") if is_negative else float("inf")
    return value


def _quote(token: str, is_negative: bool) -> str:
    return f"'{'-' if is_negative else ''}{token}'" if token else "the end of the file"


def unquote(token: str) -> bytes:
    """Return the bytes of a quoted string token, with escapes replaced.

    Raises:
        ValueError: if an escape is invalid.
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
            raise ValueError(f"'{match[0].decode()}' is not a valid escape: there is no such character") from None
    if letter not in _ESCAPES:
        raise ValueError(f"'\\{letter.decode(errors='replace')}' is not a valid escape sequence")
    return bytes([_ESCAPES[letter]])


_LAYERS = frozenset({"LayerParameter", "V1LayerParameter", "V0LayerParameter"})


def is_layer(message: Message) -> bool:
    """Return whether a message is a layer's definition."""
    return message.DESCRIPTOR.name in _LAYERS


def add_layer_to_problem(problem: Problem, layer: Any) -> Problem:
    """Return a copy of the problem that names the layer, if the layer has a name."""
    layer_type = layer.type if isinstance(layer.type, str) else None  # V1 layers have a number
    return replace(problem, layer=layer.name, layer_type=layer_type) if layer.name else problem


def is_unknown_field(problem: Problem) -> bool:
    """Return whether a problem of a text is a field that its message does not have."""
    return re.match(r"\w+ has no field '", problem.message) is not None


M = TypeVar("M", bound=Message)

log = logging.getLogger("caffejax")

MAX_DEPTH = 100


def parse_text(text: str, message_class: type[M], *, file: str | None = None) -> M:
    """Parse prototxt.

    Args:
        text: the text. Lone surrogates represent bytes that are not UTF-8; they are allowed in comments and in strings,
            which are then read as Latin-1.
        message_class: the class to parse into, such as `caffe_pb2.NetParameter`.
        file: the file's name for error messages.

    Raises:
        SchemaError: if the text has problems. The message has every problem with its line and column, and the most
            similar name for each unknown name.
    """
    message, problems = parse_valid_fields(text, message_class, file=file)
    if problems:
        raise SchemaError(problems)
    return message


def parse_valid_fields(text: str, message_class: type[M], *, file: str | None = None) -> tuple[M, tuple[Problem, ...]]:
    """Parse prototxt as `parse_text` does, and return the message with its valid fields and all problems."""
    parser = _Parser(text, file)
    message = message_class()
    with suppress(GiveUpError):
        parser.parse_fields(message, END, 0, 0)
    if parser.bare_words:
        warning = f"{format_list(parser.bare_words, 1)}: strings without quotes, which BVLC Caffe refuses"
        warn_once(f"{file}: {warning}" if file else warning)
    return message, (*parser.problems, *parser.missing_field_problems)


def format_text(message: Message) -> str:
    """Format a message as prototxt, with its fields in the order of the schema."""
    return text_format.MessageToString(message, as_utf8=True)


class _Field:
    """The properties of a field that the parser uses."""

    def __init__(self, field: FieldDescriptor) -> None:
        self.name: str = field.name
        self.is_repeated: bool = field.is_repeated
        self.message_type: Descriptor | None = field.message_type
        self.is_bytes = field.type == FieldDescriptor.TYPE_BYTES
        self.converter: Convert | None = None
        if not (self.message_type or field.cpp_type == FieldDescriptor.CPPTYPE_STRING):
            self.converter = make_converter(field)


@cache
def _get_fields(descriptor: Descriptor) -> tuple[dict[str, _Field], tuple[str, ...]]:
    """Return a message type's fields by name, and the names of its required fields."""
    fields = {field.name: _Field(field) for field in descriptor.fields}
    return fields, tuple(field.name for field in descriptor.fields if field.is_required)


class _Parser(Cursor):
    """A recursive-descent parser that fills messages in one pass.

    Its methods parse from the current token on, record problems and continue, or raise `GiveUpError`.
    """

    def __init__(self, text: str, file: str | None) -> None:
        super().__init__(text, file)
        self.bare_words: list[str] = []  # the fields and values of strings without quotes
        self.unclosed_index = -1  # the index of the last token at which a closing brace was missing
        self.missing_field_problems: list[Problem] = []  # missing required fields, in the layer that is being parsed

    def parse_fields(self, message: Message, closing: str, opening_index: int, depth: int) -> None:
        """Parse the fields of `message` up to the token `closing`. Problems found in a layer contain the layer's name.

        Args:
            message: the message to fill.
            closing: the closing bracket, or `END`.
            opening_index: the index of the opening bracket's token.
            depth: the number of enclosing messages.
        """
        num_problems = len(self.problems)
        try:
            self.parse_field_list(message, closing, opening_index, depth)
        finally:  # also after `GiveUpError`, so that the layer is known to be incomplete
            if is_layer(message):
                problems = [*self.problems[num_problems:], *self.missing_field_problems]
                self.problems[num_problems:] = [
                    p if p.layer is not None else add_layer_to_problem(p, message) for p in problems
                ]
                self.missing_field_problems.clear()

    def parse_field_list(self, message: Message, closing: str, opening_index: int, depth: int) -> None:
        """Parse fields as `parse_fields` does, without adding the names of layers to the problems."""
        tokens = self.tokens
        fields, required = _get_fields(message.DESCRIPTOR)
        names: set[str] = set()
        while (token := tokens[self.position]) != closing:
            start = self.position
            field = fields.get(token)
            if field is None and self.recover_missing_brace(message, opening_index):
                return
            if field is None:
                self.skip_unknown(message.DESCRIPTOR.name, fields, opening_index)
                continue
            self.position += 1
            if field.is_repeated:
                self.parse_repeated(message, field, depth)
            elif token in names:
                self.add_problem(start, f"'{token}' occurs twice in {message.DESCRIPTOR.name}, which allows it once")
                self.skip_value()
            else:
                names.add(token)
                self.parse_value(message, field, depth)
            if tokens[self.position] in (",", ";"):
                self.position += 1
        self.position += 1
        for name in required:
            if name not in names:
                self.missing_field_problems.append(
                    self.make_problem(opening_index, f"{message.DESCRIPTOR.name} needs '{name}'")
                )

    def recover_missing_brace(self, message: Message, opening_index: int) -> bool:
        """Return whether a layer begins here inside `message`, and record that a closing brace is missing before it.

        The problem is recorded once, for the innermost message.
        """
        begins_layer = self.tokens[self.position] in ("layer", "layers") and self.tokens[self.position + 1] == "{"
        if not begins_layer or self.tokens[opening_index] not in CLOSING:
            return False
        if self.unclosed_index != self.position:
            self.unclosed_index = self.position
            line, _ = self.tokens.find_line_and_column(opening_index)
            description = f"a closing brace is missing before this `{self.tokens[self.position]}`"
            self.add_problem(
                self.position, f"{description}: {message.DESCRIPTOR.name}, opened at line {line}, is still open"
            )
        return True

    def parse_value(self, message: Message, field: _Field, depth: int) -> None:
        """Parse the value of a singular field."""
        if field.message_type:
            child = getattr(message, field.name)
            child.SetInParent()
            self.parse_message(lambda: child, depth)
            return
        self.expect(":")
        if self.tokens[self.position] == "[":
            if field.name == "device_id":  # forks with several GPUs have a list
                self.parse_first(message, field)
                return
            self.add_problem(self.position, f"{field.name} takes one value, not a list")
            self.skip_nested()
            return
        value = self.parse_scalar(field)
        if value is not None:
            setattr(message, field.name, value)

    def parse_first(self, message: Message, field: _Field) -> None:
        """Parse a list for a singular field. Use its first value, and log a warning."""
        log.warning("%s%s: only the first value of the list is used", f"{self.file}: " if self.file else "", field.name)
        self.position += 1
        value = self.parse_scalar(field)
        if value is not None:
            setattr(message, field.name, value)
        while self.tokens[self.position] == ",":
            self.position += 1
            self.parse_scalar(field)
        self.expect("]")

    def parse_repeated(self, message: Message, field: _Field, depth: int) -> None:
        """Parse one value, or a list of values in brackets, and append it to a repeated field."""
        values = getattr(message, field.name)
        if not field.message_type:
            self.expect(":")
        elif self.tokens[self.position] == ":":
            self.position += 1
        if self.tokens[self.position] != "[":
            self.parse_element(values, field, depth)
            return
        self.position += 1
        while self.tokens[self.position] != "]":
            self.parse_element(values, field, depth)
            if self.tokens[self.position] != "]":
                self.expect(",")
                if self.tokens[self.position] == "]":
                    self.give_up(self.position, "expected a value, found ']'")
        self.position += 1

    def parse_element(self, values: Any, field: _Field, depth: int) -> None:
        """Parse one value and append it to `values`, the content of a repeated field."""
        if field.message_type:
            self.parse_message(values.add, depth)
        elif (value := self.parse_scalar(field)) is not None:
            values.append(value)

    def parse_message(self, make: Callable[[], Message], depth: int) -> None:
        """Parse `{...}` or `<...>` into the message that `make()` returns."""
        tokens = self.tokens
        if tokens[self.position] == ":":
            self.position += 1
        opening_index = self.position
        if tokens[opening_index] not in ("{", "<"):
            if tokens[opening_index][:1].isalnum() or tokens[opening_index][:1] in ('"', "'", "-", "["):
                self.add_problem(
                    opening_index, f"expected '{{', found {self.quote(opening_index)}: this field holds a message"
                )
                self.skip_value()
                return
            self.give_up(opening_index, f"expected '{{', found {self.quote(opening_index)}")
        if depth >= MAX_DEPTH:
            self.give_up(opening_index, f"messages are nested more than {MAX_DEPTH} deep")
        self.position += 1
        self.parse_fields(make(), CLOSING[tokens[opening_index]], opening_index, depth + 1)

    def parse_scalar(self, field: _Field) -> Any:
        """Parse a scalar. If it is not valid for the field, record a problem, skip the value and return None."""
        start = self.position
        token = self.tokens[start]
        try:
            if field.converter is None:
                return self.parse_string(field)
            is_negative = token == "-"
            if is_negative:
                token = self.tokens[start + 1]
            if not (token[:1].isalnum() or token[:1] in ("_", ".", '"', "'")) or token == ".":
                raise ValueError(f"expected a value, found {self.quote(start)}")
            value = field.converter(token, is_negative)
            self.position = start + 1 + is_negative
            return value
        except ValueError as error:
            self.add_problem(start, f"{field.name}: {error}")
            self.position, num_problems = start, len(self.problems)
            try:
                self.skip_value()
            except GiveUpError:
                del self.problems[num_problems:]  # remove the second report of the same problem
                raise
            return None

    def parse_string(self, field: _Field) -> str | bytes:
        """Parse a string of one or several adjacent literals.

        Raises:
            ValueError: if the next token is not a literal, or an escape is invalid.
        """
        tokens, content, start = self.tokens, b"", self.position
        if tokens[start][:1] not in ('"', "'"):
            return self.parse_bare_word(field)
        if len(tokens[start]) < 2:
            raise ValueError(f"expected a string in quotes, found {self.quote(start)}")
        while tokens[self.position][:1] in ('"', "'"):
            if len(tokens[self.position]) < 2:
                self.give_up(self.position, "this string is not closed on its line")
            content += unquote(tokens[self.position])
            self.position += 1
        return content if field.is_bytes else decode_string(content)

    def parse_bare_word(self, field: _Field) -> str:
        """Parse a string without quotes, such as a path or the name of a type, which ends at a space.

        Raises:
            ValueError: if no string follows, or a further value follows on its line, so that its end is unknown.
        """
        word, end = self.tokens.read_bare_word(self.position)
        next_token = self.tokens[end]
        has_value_after = (
            next_token and next_token not in "},;>]" and not (next_token[0].isalpha() or next_token[0] == "_")
        )
        if not word or field.is_bytes or has_value_after:
            raise ValueError(f"expected a string in quotes, found {self.quote(self.position)}")
        self.bare_words.append(f"{field.name}: {word}")
        self.position = end
        return word

    def skip_unknown(self, owner: str, fields: dict[str, _Field], opening_index: int) -> None:
        """Record a problem for a name that the message `owner` does not have, and skip the name and its value."""
        start, token = self.position, self.tokens[self.position]
        if token == END:
            line, column = self.tokens.find_line_and_column(opening_index)
            self.give_up(start, f"the text ends inside {owner}, opened at line {line}, column {column}")
        if token == "[":
            self.add_problem(start, f"{owner} has no extensions")
            self.skip_nested()
        elif token[0].isalpha() or token[0] == "_":
            hint = did_you_mean(token, fields)
            self.add_problem(start, f"{owner} has no field '{token}'{hint}")
            self.position += 1
        else:
            self.give_up(start, f"expected the name of a field of {owner}, found {self.quote(start)}")
        self.skip_value()
        if self.tokens[self.position] in (",", ";"):
            self.position += 1
