"""Reading of list files, whose lines have a path and a label, two paths, or one path."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ...base.errors import DataError, Problem, raise_if_any
from ...base.human_readable import format_bytes
from ...base.paths import read_bytes
from ..layers.context import LayerDefinition

_MAX_PROBLEMS = 20  # the largest number that one error shows
_MAX_LINE_LENGTH = 1 << 16  # bytes of a line; longer than any path
_LABEL = re.compile(r"[+-]?\d{1,18}", re.ASCII)


def read_list(file: Path) -> tuple[list[str], list[int]]:
    """Read the names and labels of images. As in Caffe, the label follows the last space; names may have spaces.

    Lines without a label are errors; Caffe reads the label 0. Blank lines at the end are ignored.

    Raises:
        DataError: if the file cannot be read or is empty, or lines do not have a name and a label. The message names
            each such line.
    """
    lines = _read_lines(file)
    names: list[str] = []
    labels: list[int] = []
    problems: list[Problem] = []
    for line_number, line in enumerate(lines, 1):
        name, _, label = line.rstrip().rpartition(" ")
        if name.strip() and _LABEL.fullmatch(label) and -(2**31) <= int(label) < 2**31:
            names.append(name)
            labels.append(int(label))
        else:
            message = f"'{line.strip()}' is not a path, a space and an integer" if line.strip() else "is blank"
            problems.append(Problem(message, str(file), line_number))
    raise_if_any(DataError, truncate_problems(problems))
    return names, labels


def read_pairs(file: Path, count: int = 2) -> list[list[str]]:
    """Read a list of pairs, or triples, of files: the first files, and so on. Only the first may have a space.

    Raises:
        DataError: if the file cannot be read or is empty, or lines do not have `count` names; it names each such line.
    """
    pairs = [[name.strip() for name in line.strip().rsplit(" ", count - 1)] for line in _read_lines(file)]
    description = f"{'three' if count == 3 else 'two'} paths separated by a space"
    problems = [
        Problem(f"'{' '.join(names)}' is not {description}", str(file), line_number)
        for line_number, names in enumerate(pairs, 1)
        if len(names) < count or not all(names)
    ]
    raise_if_any(DataError, truncate_problems(problems))
    return [list(column) for column in zip(*pairs, strict=True)]


def read_names(file: Path) -> list[str]:
    """Read a list of files with one name on each line.

    Raises:
        DataError: if the list cannot be read or is empty.
    """
    return [line.strip() for line in _read_lines(file) if line.strip()]


def _read_lines(file: Path) -> Iterator[str]:
    """Yield the lines of a text file one by one. A list may have millions of lines."""
    data = read_bytes(file, DataError, "the list of images")
    if b"\0" in data:
        raise DataError(Problem("is not a text file; each line of a list has a path, a space and a label", str(file)))
    lines = data.splitlines()
    del data
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise DataError(Problem("the list names no images", str(file)))
    for line_number, line in enumerate(lines, 1):
        if len(line) > _MAX_LINE_LENGTH:
            message = f"is {format_bytes(len(line))} long; a line has at most {format_bytes(_MAX_LINE_LENGTH)}"
            raise DataError(Problem(message, str(file), line_number))
        yield line.decode("utf-8", "surrogateescape")


def find_files(
    file: Path, names: Sequence[str], root: str, folders: Sequence[Path], item_name: str = "image"
) -> list[str]:
    """Return the paths of the files that a list names: `root` and the name, joined without a separator, as in Caffe.

    Args:
        file: the list, for messages.
        names: the names in it.
        root: Caffe's root_folder.
        folders: folders to search for files that do not exist relative to the working directory.
        item_name: the kind of file, for messages.

    Raises:
        DataError: if files are missing. The message names each of them.
    """
    root = os.path.expanduser(root)

    @functools.cache  # a list may have millions of files
    def list_folder(folder: str) -> frozenset[str]:
        try:
            return frozenset(os.listdir(folder or "."))
        except (OSError, ValueError):  # ValueError for a name with a zero byte
            return frozenset()

    def exists(path: str) -> bool:
        folder, name = os.path.split(path)
        # case-insensitive file systems have more names than they list
        return name in list_folder(folder) or os.path.exists(path)

    paths: list[str] = []
    problems: list[Problem] = []
    for line_number, name in enumerate(names, 1):
        full_name = root + name
        for path in (full_name, *(os.path.join(folder, full_name) for folder in folders)):
            if exists(path):
                paths.append(path)
                break
        else:
            problems.append(Problem(f"there is no {item_name} '{full_name}'", str(file), line_number))
    if problems and _is_slash_missing(root, names[(problems[0].line or 1) - 1], folders):
        message = f"{problems[0].message}: the root folder must end with a slash: '{root}/'"
        raise DataError(replace(problems[0], message=message))
    raise_if_any(DataError, truncate_problems(problems))
    return paths


def _is_slash_missing(root: str, name: str, folders: Sequence[Path]) -> bool:
    if not root or root.endswith("/"):
        return False
    return any(os.path.exists(os.path.join(folder, f"{root}/{name}")) for folder in (Path(), *folders))


def truncate_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Return the first 20 problems, followed by a problem that states how many more there are."""
    problems = list(problems)
    if (num_omitted := len(problems) - _MAX_PROBLEMS) > 1:
        problems[_MAX_PROBLEMS:] = [Problem(f"and {num_omitted} more", problems[0].file)]
    return problems


def get_search_folders(definition: LayerDefinition, file: Path) -> list[Path]:
    """Return the folders to search for files that a layer's list names: the net's folder and the list's folder."""
    return [folder for folder in (definition.folder, file.parent) if folder is not None]
