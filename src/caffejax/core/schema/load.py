"""Reading of nets and solvers from files, text or messages."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from ...base.errors import Problem, SchemaError, locate_errors, raise_if_any
from ...base.glog import warn_once
from ...base.human_readable import format_bytes
from ...base.paths import describe_content, read_bytes
from .caffe_pb2 import NetParameter, SolverParameter
from .text import add_layer_to_problem, format_text, is_layer, parse_valid_fields
from .upgrade import is_about_old_form, upgrade_net, upgrade_solver

M = TypeVar("M", bound=Message)

_FIELD = re.compile(r"\s*\w+\s*:\s*\S")  # a name, a colon and the start of a value
_PATH_STEP = re.compile(r"(\w+)(?:\[(\d+)\])?")  # one step of a path as protobuf prints it: layer[3]

# by expected message: its name, the message that users confuse it with, and unknown fields that are a sign of this
_CONFUSED_MESSAGES = {
    "SolverParameter": ("solver", "net", re.compile(r"SolverParameter has no field '(layers?|input)'")),
    "NetParameter": ("net", "solver", re.compile(r"NetParameter has no field '(base_lr|lr_policy|max_iter|net)'")),
}

_MAX_TEXT_SIZE = 256 << 20  # bytes; nets with their weights written out in text have tens of MB


def read_net(
    source: str | os.PathLike[str] | Message, *, name: str = "<text>", accepts_old_forms: bool = False
) -> NetParameter:
    """Read a net definition of any version and upgrade it to the current form.

    Warnings about old forms are logged to "caffejax".

    Args:
        source: a path, prototxt text (a string with a line break or a brace, or one that begins like `name: value`), or
            a NetParameter, which is copied. Its class may come from a different schema.
        name: the name of a text for error messages.
        accepts_old_forms: whether to log no warnings about old forms, only about fields that are dropped.

    Raises:
        SchemaError: if a file cannot be read, or the text has problems. The message lists all problems at once.
    """
    net, problems = read_valid_part(source, name=name, accepts_old_forms=accepts_old_forms)
    raise_if_any(SchemaError, problems)
    return net


def read_valid_part(
    source: str | os.PathLike[str] | Message,
    *,
    name: str = "<text>",
    accepts_old_forms: bool = False,
    prepare: Callable[[NetParameter], None] | None = None,
) -> tuple[NetParameter, tuple[Problem, ...]]:
    """Read the valid part of a net, and return it with all problems of its text.

    A net that cannot be upgraded is returned in its old form. `prepare` changes the net before it is upgraded. See
    `read_net` for the other arguments.

    Raises:
        SchemaError: if a file cannot be read, is binary, or is a solver.
    """
    net, problems, file = _read(source, NetParameter, name)
    if prepare is not None:
        prepare(net)
    try:
        with locate_errors(file=file):
            warnings = upgrade_net(net)
            _warn([w for w in warnings if not (accepts_old_forms and is_about_old_form(w))], file)
    except SchemaError as error:
        problems = (*problems, *error.problems)
    return net, problems


def read_solver(source: str | os.PathLike[str] | Message, *, name: str = "<text>") -> SolverParameter:
    """Read a solver definition of any version, with the nets inside it, and upgrade it to the current form.

    See `read_net` for the arguments and errors. Nets in other files are not read.
    """
    solver, problems, file = _read(source, SolverParameter, name)
    raise_if_any(SchemaError, problems)
    with locate_errors(file=file):
        _warn(upgrade_solver(solver), file)
    return solver


def source_file(source: str | os.PathLike[str] | Message) -> Path | None:
    """Return the path if a source is one, such as "net.prototxt", or None if it is a message or prototxt text.

    A string is a text if it has a line break or `{`, or if it begins like `name: value` and no such file exists.

    Raises:
        SchemaError: if the source is neither a path, a text nor a message.
    """
    if isinstance(source, Message) or (isinstance(source, str) and any(mark in source for mark in "\n{")):
        return None
    if isinstance(source, str) and _FIELD.match(source) and not os.path.exists(source):
        return None
    if not isinstance(source, str | os.PathLike):
        raise SchemaError(f"pass a path, prototxt or a message, not a value of type {type(source).__name__}")
    return Path(source)


def parse_binary(data: bytes, message_class: type[M], *, file: str | None = None) -> M:
    """Parse a message in protobuf's binary format.

    Raises:
        SchemaError: if the data is truncated or damaged, or is a different kind of message.
    """
    message = message_class()
    try:
        message.ParseFromString(data)
    except (DecodeError, ValueError, RecursionError) as error:
        kind = message.DESCRIPTOR.name
        raise SchemaError(Problem(f"this is not a {kind}, or the file is damaged or truncated", file)) from error
    _check_complete(message, file)
    return message


def _read(
    source: str | os.PathLike[str] | Message, message_class: type[M], name: str
) -> tuple[M, tuple[Problem, ...], str]:
    """Return the message, the problems of its text, and the name of its source for error messages."""
    if isinstance(source, message_class):
        copy = message_class()
        copy.CopyFrom(source)
        _check_complete(copy, name)
        return copy, (), name
    if isinstance(source, Message):  # of the class of a different schema, whose field numbers may differ
        if source.DESCRIPTOR.name != message_class.DESCRIPTOR.name:
            raise SchemaError(f"expected a {message_class.DESCRIPTOR.name}, found a {source.DESCRIPTOR.name}")
        return *parse_valid_fields(format_text(source), message_class, file=name), name
    if isinstance(source, str) and not source.strip():
        raise SchemaError("the text is empty; give the path of a prototxt, or its text")
    path = source_file(source)
    text, file = (str(source), name) if path is None else (read_text(path), str(path))
    message, problems = parse_valid_fields(text, message_class, file=file)
    if confusion := _CONFUSED_MESSAGES.get(message_class.DESCRIPTOR.name):
        expected_name, actual_name, field_pattern = confusion
        if any(field_pattern.match(p.message) for p in problems):
            hint = f"this is a {actual_name}, not a {expected_name}; name the {expected_name} itself"
            raise SchemaError(Problem(hint, file))
    return message, problems, file


def _check_complete(message: Message, file: str | None) -> None:
    problems = []
    for path in message.FindInitializationErrors():  # type: ignore[attr-defined]  # the stubs lack it
        *parents, _ = path.split(".")
        owner, layer = message, None
        for name, index in (_PATH_STEP.match(parent).groups() for parent in parents):  # type: ignore[union-attr]
            owner = getattr(owner, name)[int(index)] if index else getattr(owner, name)
            layer = owner if is_layer(owner) else layer
        problem = Problem(f"required fields are missing: {path}", file)
        problems.append(problem if layer is None else add_layer_to_problem(problem, layer))
    raise_if_any(SchemaError, problems)


def read_text(path: Path) -> str:
    """Read a prototxt. Bytes that are not UTF-8 become lone surrogates.

    Raises:
        SchemaError: if the file cannot be read, is binary or too large, or is something else, such as a web page.
    """
    content = read_bytes(path, SchemaError, max_bytes=_MAX_TEXT_SIZE + 1)
    if (description := describe_content(content)) not in (None, "a text"):
        raise SchemaError(Problem(f"this is {description}", str(path)))
    if b"\0" in content:
        raise SchemaError(Problem("this is a binary file; a prototxt is text", str(path)))
    if len(content) > _MAX_TEXT_SIZE:
        message = f"is larger than {format_bytes(_MAX_TEXT_SIZE)}, the limit for text files"
        raise SchemaError(Problem(message, str(path)))
    return content.decode("utf-8-sig", "surrogateescape")


def _warn(warnings: list[str], file: str) -> None:
    for warning in warnings:
        warn_once(f"{file}: {warning}")  # the nets of a solver are read several times
