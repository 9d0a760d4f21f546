"""Read a fuzz case, and determine its outcome in the reading process."""

from __future__ import annotations

import functools
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

from caffejax.base.errors import CaffejaxError

from .harness import Files, find_no_difference, get_intact_sets, load_harness, write_files
from .outcomes import Outcome, exception_outcome

_MAX_MESSAGE_LENGTH = 20_000  # characters, and ten for each byte of the case


def run_case(format: str, intact_index: int | None, files: Files, folder: Path) -> Outcome:
    """Read files, which are written to a new folder, as a format; compare what was read with the intact set.

    Python's own warnings count as exceptions.
    """
    has_reference = intact_index is not None and load_harness(format).describe_difference is not find_no_difference
    expected = read_intact_set(format, intact_index) if has_reference else None  # type: ignore[arg-type]
    try:
        write_files(folder, files)
    except (OSError, ValueError):  # a name that no file can have
        return Outcome("equal")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = load_harness(format).read(folder)
    except CaffejaxError as error:
        return _classify_refusal(error, folder, load_harness(format).location_text)
    except BaseException as error:
        return exception_outcome(error)
    difference = None
    if has_reference:
        assert intact_index is not None
        with warnings.catch_warnings(action="ignore"):
            difference = load_harness(format).describe_difference(
                files, get_intact_sets(format)[intact_index], expected, result
            )
    return Outcome("read") if difference is None else Outcome("differs", difference.split(":")[0], difference)


@functools.cache
def read_intact_set(format: str, intact_index: int) -> Any:
    """Return what is read of an intact set."""
    folder = Path(tempfile.mkdtemp())
    write_files(folder, get_intact_sets(format)[intact_index])
    try:
        return load_harness(format).read(folder)
    finally:
        shutil.rmtree(folder)


def _classify_refusal(error: CaffejaxError, folder: Path, location_text: str) -> Outcome:
    """Return the outcome of a refusal.

    An error without a place, an endless one, or one with control characters is a finding.
    """
    message, exception_result = str(error), exception_outcome(error)
    if str(folder) not in message and location_text not in message:
        return Outcome("unnamed", exception_result.location, exception_result.text)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if len(message) > _MAX_MESSAGE_LENGTH + 10 * size:
        return Outcome("output", f"endless message, {exception_result.location}", message[:2000])
    if not message.replace("\n", "").isprintable():
        return Outcome("output", f"control characters, {exception_result.location}", ascii(message))
    return Outcome("refused", text=message[:300])
