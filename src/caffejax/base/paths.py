"""Functions that find files, safely read files at untrusted paths, and describe files of an unexpected kind.

Strings in Caffe's files are bytes, mostly UTF-8, but Latin-1 in some of old editors. Python's protobuf has text only.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from .errors import CaffejaxError, Problem, did_you_mean, raise_if_any
from .host_memory import get_free_memory
from .human_readable import format_bytes

HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MAX_UNCHECKED_SIZE = 1 << 28  # bytes up to which a file is read without a look at the free memory

_latin1_strings: set[str] = set()  # those that `decode_string` returned last for bytes that are not UTF-8


def decode_string(content: bytes) -> str:
    """Return the text of a string in a prototxt or a .caffemodel. Bytes that are not UTF-8 are read as Latin-1."""
    try:
        text = content.decode()
        _latin1_strings.discard(text)
    except UnicodeError:
        text = content.decode("latin-1")
        _latin1_strings.add(text)
    return text


def encode_string(text: str) -> bytes:
    """Return the bytes of a string for one of Caffe's files: those from which `decode_string` made it, or UTF-8."""
    return text.encode("latin-1" if text in _latin1_strings else "utf-8")


def find_file(name: str, folder: Path | None) -> Path:
    """Return the path of a file as Caffe finds it, relative to the working directory, with `~` expanded.

    If the file exists only relative to `folder`, the path in `folder` is returned.

    Args:
        name: the path in a file or on the command line.
        folder: the folder of the file that contains the path, or None.
    """
    expanded_path = Path(os.path.expanduser(os.fsdecode(encode_string(name)) if name in _latin1_strings else name))
    path_in_folder = folder / expanded_path if folder is not None else expanded_path
    # os.path.exists, unlike Path.exists, returns False for names that are too long or have a NUL
    return path_in_folder if os.path.exists(path_in_folder) and not os.path.exists(expanded_path) else expanded_path


def split_commas(text: str | None) -> list[str]:
    """Return the names in a list separated by commas, without the spaces around them and without empty names."""
    return [name for part in (text or "").split(",") if (name := part.strip())]


def is_hdf5(path: str | os.PathLike[str]) -> bool:
    """Return whether a file can be read and begins with the signature of HDF5."""
    try:
        with open(path, "rb") as file:
            return file.read(len(HDF5_SIGNATURE)) == HDF5_SIGNATURE
    except (OSError, ValueError):
        return False


# beginnings of files of other kinds, including the results of failed downloads
_DESCRIPTIONS_BY_BEGINNING = [
    (re.compile(beginning, re.IGNORECASE | re.DOTALL), kind)
    for beginning, kind in (
        (rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype|html|head|\?xml)\b", "an HTML page; download the file itself"),
        (rb"version https://git-lfs", "a git-lfs pointer; fetch the file with `git lfs pull`"),
        (rb"\x1f\x8b|BZh|\xfd7zXZ", "a compressed file; unpack it first"),
        (rb"PK\x03\x04", "a zip archive, such as PyTorch weights or an .npz file"),
        (rb"\x89PNG|\xff\xd8\xff|GIF8", "a picture"),
        (HDF5_SIGNATURE, "an HDF5 file"),
        (
            rb"\x08.{1,5}\x12[^\0]{1,300}\.caffemodel",
            "a .solverstate, which has no weights; to continue its training, name it with --snapshot",
        ),
    )
]
_CONTROL_CHARACTER = re.compile(rb"[\0-\x08\x0e-\x1f\x7f]")  # bytes that do not occur in text


def describe_content(content: bytes) -> str | None:
    """Describe the kind of a file whose content was not expected, with a remedy if there is one.

    Args:
        content: at least the first 1,000 bytes of the file.

    Returns:
        The description, such as "an HTML page; download the file itself", or None if the kind is unknown.
    """
    for beginning, description in _DESCRIPTIONS_BY_BEGINNING:
        if beginning.match(content):
            return description
    return None if not content or _CONTROL_CHARACTER.search(content[:1000]) else "a text"


def make_missing_problem(path: str | os.PathLike[str]) -> Problem:
    """Return the problem for a file or folder that does not exist."""
    return Problem("no such file; check the path and the working directory", os.fspath(path))


def suggest_sibling(path: Path, max_names: int = 1000) -> str:
    """Return "; did you mean 'x'?" with the most similar name in the path's folder, or "" if no name is similar.

    Only the first `max_names` entries of the folder are compared.
    """
    try:
        with os.scandir(path.parent) as entries:
            return did_you_mean(path.name, [entry.name for entry in islice(entries, max_names)])
    except (OSError, ValueError):  # ValueError for a name with a zero byte
        return ""


def check_exist(paths: Iterable[str | os.PathLike[str]], error: type[CaffejaxError] = CaffejaxError) -> None:
    """Check that all files or folders exist.

    Args:
        paths: the paths.
        error: the class of the exception to raise.

    Raises:
        CaffejaxError: if paths are missing; the message names each of them.
    """
    raise_if_any(error, (make_missing_problem(path) for path in paths if not os.path.exists(path)))


def read_content(path: str | os.PathLike[str], max_bytes: int = -1) -> bytes:
    """Return the bytes of a file whose path may come from an untrusted file, at most `max_bytes` if this is given.

    Raises:
        OSError: if the file cannot be read, or without a limit is a character device such as /dev/zero, which has no
            end, or larger than the free memory.
        ValueError: if the path has a NUL character.
    """
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if max_bytes < 0 and stat.S_ISCHR(status.st_mode):
            raise OSError(errno.EINVAL, "it is a device, not a file")
        if max_bytes < 0 and status.st_size > _MAX_UNCHECKED_SIZE and status.st_size > get_free_memory():
            raise OSError(errno.ENOMEM, f"it has {format_bytes(status.st_size)}, more than the free memory")
        return file.read(max_bytes)


def read_bytes(
    path: str | os.PathLike[str], error: type[CaffejaxError], description: str = "", max_bytes: int = -1
) -> bytes:
    """Return the bytes of a file, like `read_content`, with errors of a given class.

    Args:
        path: the file.
        error: the class of the exception to raise.
        description: a noun phrase for the file in messages, such as "the label map", or "".
        max_bytes: the largest number of bytes to read; by default all.

    Raises:
        CaffejaxError: if the file cannot be read; the message has the path and the reason.
    """
    try:
        return read_content(path, max_bytes)
    except (OSError, ValueError) as cause:
        if not description and isinstance(cause, FileNotFoundError):
            raise error(make_missing_problem(path)) from None
        if not description and isinstance(cause, IsADirectoryError):
            raise error(Problem("this is a folder; name a file in it", str(path))) from None
        reason = getattr(cause, "strerror", None) or cause
        raise error(Problem(f"{description} cannot be read: {reason}".strip(), str(path))) from cause
