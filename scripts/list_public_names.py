"""Write tests/golden/public_names.txt: the names of caffejax and of its doors, with their signatures.

python scripts/list_public_names.py          writes it
python scripts/list_public_names.py --check  fails if it is out of date
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ForwardRef

from page_writer import write_or_check

LIST = Path(__file__).parents[1] / "tests" / "golden" / "public_names.txt"
PUBLIC_MODULES = ("caffejax", "caffejax.pycaffe", "caffejax.dnn", "caffejax.export")


def format_names() -> str:
    """Return a line for each public name, function, class, and public method or property of a class."""
    return "".join(f"{line}\n" for module in PUBLIC_MODULES for line in list_names(module))


def list_names(module_name: str) -> Iterator[str]:
    module = importlib.import_module(module_name)
    for name in sorted(module.__all__):
        value, full_name = getattr(module, name), f"{module_name}.{name}"
        if inspect.isclass(value):
            yield f"class {full_name}{format_signature(value)}"
            yield from (f"    {line}" for line in list_members(value))
        elif inspect.isroutine(value):
            yield f"{full_name}{format_signature(value)}"
        else:
            yield f"{full_name}: {type(value).__name__}"


def list_members(cls: type) -> Iterator[str]:
    """Yield the public methods and properties that a class has from classes of caffejax."""
    owners = [owner for owner in cls.__mro__ if owner.__module__.startswith("caffejax.")]
    for name in sorted({name for owner in owners for name in vars(owner) if not name.startswith("_")}):
        member = inspect.getattr_static(cls, name)
        if isinstance(member, property | functools.cached_property):
            yield name
        elif isinstance(member, staticmethod | classmethod):
            yield f"{type(member).__name__} {name}{format_signature(getattr(cls, name))}"
        elif inspect.isroutine(member) and not inspect.isdatadescriptor(member):
            yield f"{name}{format_signature(member)}"


def format_signature(function: Any) -> str:
    """Return a signature with annotations as they are written, and defaults without the fields of objects."""
    if inspect.isclass(function) and type(function).__call__ is not type.__call__:  # flax's modules
        signature = inspect.signature(function.__init__)
        signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    else:
        signature = inspect.signature(function)
    parameters = [
        p.replace(annotation=quote_annotation(p.annotation), default=shorten_default(p.default))
        for p in signature.parameters.values()
    ]
    return_annotation = quote_annotation(signature.return_annotation)
    return str(signature.replace(parameters=parameters, return_annotation=return_annotation))


class Written:
    """Text that a signature shows as it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def quote_annotation(annotation: Any) -> Any:
    if isinstance(annotation, ForwardRef):
        return Written(annotation.__forward_arg__)
    return Written(annotation) if isinstance(annotation, str) else annotation


def shorten_default(value: Any) -> Any:
    if value is inspect.Parameter.empty or value is None or isinstance(value, str | int | float | tuple):
        return value
    if inspect.isroutine(value) or inspect.isclass(value):
        return Written(value.__name__)
    return Written("<factory>" if repr(value) == "<factory>" else f"{type(value).__name__}(...)")


if __name__ == "__main__":
    sys.exit(write_or_check(lambda: {LIST: format_names()}, __doc__))
