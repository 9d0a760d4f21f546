"""Reading of a case, and its outcome, as far as the reading process can determine it."""

from __future__ import annotations

import functools
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

from caffejax.errors import CaffejaxError

from .harness import Files, harness, intact_files, no_complaint, write_files
from .outcomes import Outcome, exception_outcome

_LONGEST_MESSAGE = 20_000  # characters, and ten for each byte of the case


def judge(format: str, set_number: int | None, files: Files, folder: Path) -> Outcome:
    """Read files, which are written to a new folder, as a format; compare what was read with the intact set.

    Python's own warnings count as exceptions.
    """
    compares = set_number is not None and harness(format).complaint is not no_complaint
    expected = expected_values(format, set_number) if compares else None  # type: ignore[arg-type]
    try:
        write_files(folder, files)
    except (OSError, ValueError):  # a name that no file can have
        return Outcome("equal")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = harness(format).read(folder)
    except CaffejaxError as error:
        return _refusal(error, folder, harness(format).location_text)
    except BaseException as error:
        return exception_outcome(error)
    complaint = None
    if compares:
        assert set_number is not None
        with warnings.catch_warnings(action="ignore"):
            complaint = harness(format).complaint(files, intact_files(format)[set_number], expected, result)
    return Outcome("read") if complaint is None else Outcome("differs", complaint.split(":")[0], complaint)


@functools.cache
def expected_values(format: str, set_number: int) -> Any:
    """Return what is read of an intact set."""
    folder = Path(tempfile.mkdtemp())
    write_files(folder, intact_files(format)[set_number])
    try:
        return harness(format).read(folder)
    finally:
        shutil.rmtree(folder)


def _refusal(error: CaffejaxError, folder: Path, location_text: str) -> Outcome:
    """Return the outcome of a refusal.

    An error without a place, an endless one, or one with control characters is a finding.
    """
    message, code = str(error), exception_outcome(error)
    if str(folder) not in message and location_text not in message:
        return Outcome("unnamed", code.location, code.text)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if len(message) > _LONGEST_MESSAGE + 10 * size:
        return Outcome("output", f"endless message, {code.location}", message[:2000])
    if not message.replace("\n", "").isprintable():
        return Outcome("output", f"control characters, {code.location}", ascii(message))
    return Outcome("refused", text=message[:300])
