"""The outcomes of fuzz cases, and when two findings are the same."""

from __future__ import annotations

import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MAX_SECONDS = 10  # a case may take
MAX_MEMORY = 512 << 20  # bytes that it may take beyond what the process had

CLEAN_KINDS = ("read", "refused", "equal")  # equal: the mutation has changed nothing


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case.

    Attributes:
        kind: one of `CLEAN_KINDS`, or a problem: exception, warning, differs, unnamed, output, memory, hang, crash.
        location: the place in the code, or another short word that distinguishes findings.
        text: the details.
        seconds: the time of the case.
    """

    kind: str
    location: str = ""
    text: str = ""
    seconds: float = 0.0

    @property
    def is_finding(self) -> bool:
        """Return whether something is wrong."""
        return self.kind not in CLEAN_KINDS

    @property
    def signature(self) -> str:
        """The same for findings that are the same."""
        return f"{self.kind} {self.location}"

    def to_json(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


def exception_outcome(error: BaseException) -> Outcome:
    """Return the outcome for an exception that caffejax does not raise on purpose."""
    frames = traceback.extract_tb(error.__traceback__)
    caffejax_frames = [frame for frame in frames if "caffejax" in Path(frame.filename).parts] or list(frames)
    location = f"{Path(caffejax_frames[-1].filename).name}:{caffejax_frames[-1].name}" if caffejax_frames else ""
    kind = "warning" if isinstance(error, Warning) else "exception"
    text = "".join(traceback.format_exception(error))
    return Outcome(kind, f"{type(error).__name__} in {location}", text[-6000:])
