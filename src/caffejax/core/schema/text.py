"""The parser and the printer of prototxt, protobuf's text format.

Google's parser stops at the first unknown name. A net from an unknown fork has many unknown names, so this parser
records a problem, skips the value and continues: the user sees all problems at once. It stops only if it cannot follow
the structure of the text. A layer inside a layer is a sign of a missing brace, and is read as the next layer.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, NoReturn, TypeVar

from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from ...base.errors import Problem, SchemaError, did_you_mean, raise_if_any
from ...base.glog import warn_once
from ...base.human_readable import format_list
from ...base.paths import decode_string
from .tokens import CLOSING, END, Tokens, make_converter, unquote

M = TypeVar("M", bound=Message)

log = logging.getLogger("caffejax")

MAX_DEPTH = 100
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
    raise_if_any(SchemaError, problems)
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
    def __init__(self, field: FieldDescriptor) -> None:
        self.name: str = field.name
        self.is_repeated: bool = field.is_repeated
        self.message_type: Descriptor | None = field.message_type
        self.is_bytes = field.type == FieldDescriptor.TYPE_BYTES
        self.converter: Callable[[str], Any] | None = None
        if not (self.message_type or field.cpp_type == FieldDescriptor.CPPTYPE_STRING):
            self.converter = make_converter(field)


@cache
def _get_fields(descriptor: Descriptor) -> tuple[dict[str, _Field], tuple[str, ...]]:
    fields = {field.name: _Field(field) for field in descriptor.fields}
    return fields, tuple(field.name for field in descriptor.fields if field.is_required)


class GiveUpError(Exception):
    """Raised if the parser cannot follow the structure of the text. The problem is already recorded."""


class _Parser:
    """A recursive-descent parser, whose methods record problems and continue, or raise `GiveUpError`."""

    def __init__(self, text: str, file: str | None) -> None:
        self.tokens = Tokens(text)
        self.file = file
        self.position = 0  # the index of the next token
        self.problems: list[Problem] = []
        self.bare_words: list[str] = []  # the fields and values of strings without quotes
        self.unclosed_index = -1  # the index of the last token at which a closing brace was missing
        self.missing_field_problems: list[Problem] = []  # missing required fields, in the layer that is being parsed

    def parse_fields(self, message: Message, closing: str, opening_index: int, depth: int) -> None:
        """Fill `message`, up to the token `closing`, a bracket or `END`. Problems in a layer contain its name."""
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
            self.position += 1
            if field is None:
                self.skip_unknown(start, message.DESCRIPTOR.name, fields, opening_index)
            elif field.is_repeated:
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
        missing = (f"{message.DESCRIPTOR.name} needs '{name}'" for name in required if name not in names)
        self.missing_field_problems += [self.make_problem(opening_index, text) for text in missing]

    def recover_missing_brace(self, message: Message, opening_index: int) -> bool:
        """Return whether a layer begins here inside `message`, and record once that a closing brace is missing."""
        begins_layer = self.tokens[self.position] in ("layer", "layers") and self.tokens[self.position + 1] == "{"
        if not begins_layer or self.tokens[opening_index] not in CLOSING:
            return False
        if self.unclosed_index != self.position:
            self.unclosed_index = self.position
            line, _ = self.tokens.find_line_and_column(opening_index)
            problem = f"a closing brace is missing before this `{self.tokens[self.position]}`"
            owner = message.DESCRIPTOR.name
            self.add_problem(self.position, f"{problem}: {owner}, opened at line {line}, is still open")
        return True

    def parse_value(self, message: Message, field: _Field, depth: int) -> None:
        if field.message_type:
            child = getattr(message, field.name)
            child.SetInParent()
            self.parse_message(lambda: child, depth)
            return
        self.expect(":")
        if self.tokens[self.position] == "[":
            if field.name != "device_id":  # forks with several GPUs have a list
                self.add_problem(self.position, f"{field.name} takes one value, not a list")
                self.skip_nested()
                return
            location = f"{self.file}: " if self.file else ""
            log.warning("%s%s: only the first value of the list is used", location, field.name)
        values: list[Any] = []
        self.parse_values(values, field, depth)
        if values:
            setattr(message, field.name, values[0])

    def parse_repeated(self, message: Message, field: _Field, depth: int) -> None:
        if not field.message_type:
            self.expect(":")
        elif self.tokens[self.position] == ":":
            self.position += 1
        self.parse_values(getattr(message, field.name), field, depth)

    def parse_values(self, values: Any, field: _Field, depth: int) -> None:
        """Parse one value, or a list of values in brackets, and append it to `values`."""
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
            problem = f"expected '{{', found {self.quote(opening_index)}"
            if tokens[opening_index][:1].isalnum() or tokens[opening_index][:1] in ('"', "'", "-", "["):
                self.add_problem(opening_index, f"{problem}: this field holds a message")
                self.skip_value()
                return
            self.give_up(opening_index, problem)
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
            sign = "-" if token == "-" else ""
            if sign:
                token = self.tokens[start + 1]
            if not (token[:1].isalnum() or token[:1] in ("_", ".", '"', "'")) or token == ".":
                raise ValueError(f"expected a value, found {self.quote(start)}")
            value = field.converter(sign + token)
            self.position = start + 1 + len(sign)
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
        """Parse a string of one or several adjacent literals, or raise `ValueError`."""
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
        """Parse a string without quotes, such as a path, which ends at a space.

        It is refused if a further value follows on its line, because its end is then unknown.
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

    def skip_unknown(self, start: int, owner: str, fields: dict[str, _Field], opening_index: int) -> None:
        token = self.tokens[start]
        if token == END:
            line, column = self.tokens.find_line_and_column(opening_index)
            self.give_up(start, f"the text ends inside {owner}, opened at line {line}, column {column}")
        if token == "[":
            self.add_problem(start, f"{owner} has no extensions")
            self.position = start
            self.skip_nested()
        elif token[0].isalpha() or token[0] == "_":
            hint = did_you_mean(token, fields)
            self.add_problem(start, f"{owner} has no field '{token}'{hint}")
        else:
            self.give_up(start, f"expected the name of a field of {owner}, found {self.quote(start)}")
        self.skip_value()

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
        line, column = self.tokens.find_line_and_column(index)
        return Problem(message, self.file, line, column)

    def add_problem(self, index: int, message: str) -> None:
        self.problems.append(self.make_problem(index, message))

    def give_up(self, index: int, message: str) -> NoReturn:
        self.add_problem(index, message)
        raise GiveUpError
