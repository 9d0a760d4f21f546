"""Reports on model files: plain values that can be pickled and written as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeVar

from ...base.errors import UNKNOWN_TYPE, Problem
from ...base.human_readable import format_list

R = TypeVar("R")

Kind = Literal["net", "solver", "unreadable", "other"]
Cause = Literal["text", "type", "setting", "python", "blob", "shape", "weights", "crash"]

# by the beginning of the message; the cause of other messages is "shape"
_CAUSES: dict[str, Cause] = {
    UNKNOWN_TYPE: "type",
    "setting ": "setting",
    "there is no Python module": "python",
    "unknown bottom blob": "blob",
}


@dataclass(frozen=True)
class Finding:
    """A problem and the layers that have it.

    Attributes:
        cause: the kind of problem.
        message: the description of the problem.
        layers: names of the layers with this problem.
    """

    cause: Cause
    message: str
    layers: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = format_list([f"'{name}'" for name in self.layers], 3)
        prefix = f"{len(self.layers)} layers: " if len(self.layers) > 1 else "layer "
        return f"{self.message} ({prefix}{names})" if self.layers else self.message


@dataclass(frozen=True)
class WeightsReport:
    """A comparison of the blobs in a weights file with a net's blobs.

    Attributes:
        file: the path of the weights file.
        matched: number of layers whose blobs are in the file with the net's shapes.
        mismatched: problems of blobs whose shapes or numbers differ from the net's.
        missing: the layers whose blobs are not in the file; fillers would initialise these blobs.
        unused: number of layers in the file that are not in the net.
    """

    file: str
    matched: int = 0
    mismatched: tuple[Finding, ...] = ()
    missing: tuple[str, ...] = ()
    unused: int = 0


@dataclass(frozen=True)
class PhaseReport:
    """The report on a net in one state.

    Attributes:
        state: the phase, followed by "+stage" for each stage.
        outcome: "loads", "fails", or "no data" if the net has data layers, but none in this state.
        findings: the problems, if the net fails to load.
        assumed: assumptions on the shapes of data layers with a missing source.
        compiled: number of compiled layers.
        on_host: layers that run on the host, as `name (type)`.
        parameters: number of elements of all blobs, or None if it is unknown.
        memory: the approximate memory in bytes, without the compiler's temporary memory: of training if
            the phase is TRAIN and the net has losses, otherwise of a forward pass. None if it is unknown.
        weights: a report for each weights file.
    """

    state: str
    outcome: Literal["loads", "fails", "no data"]
    findings: tuple[Finding, ...] = ()
    assumed: tuple[str, ...] = ()
    compiled: int = 0
    on_host: tuple[str, ...] = ()
    parameters: int | None = None
    memory: int | None = None
    weights: tuple[WeightsReport, ...] = ()


@dataclass(frozen=True)
class Report:
    """The report on a model file.

    Attributes:
        file: the path of the file.
        kind: "net", "solver", "unreadable" if the file is not in text format, or "other" if it contains a different
            message.
        findings: problems of the file's text, or of a solver's settings.
        phases: reports on the states of the net, or of the nets that a solver's file contains.
        notes: old forms, ignored settings of Caffe's forks, and nets that a solver names by path.
    """

    file: str
    kind: Kind
    findings: tuple[Finding, ...] = ()
    phases: tuple[PhaseReport, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def loads(self) -> bool:
        """True if the file has no problems, weights fit, and the net loads.

        A net loads if it loads in at least one state and fails in none; states without data are ignored.
        """
        outcomes = [phase.outcome for phase in self.phases]
        has_mismatch = any(w.mismatched for phase in self.phases for w in phase.weights)
        return not (
            self.findings or has_mismatch or "fails" in outcomes or (self.kind == "net" and "loads" not in outcomes)
        )

    def largest_sizes(self) -> tuple[int, int]:
        """Return the parameters and the memory of the state in which each is largest, or 0 if unknown."""
        parameters = max((phase.parameters or 0 for phase in self.phases), default=0)
        return parameters, max((phase.memory or 0 for phase in self.phases), default=0)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON-compatible values."""
        return {**asdict(self), "loads": self.loads}


def make_findings(problems: Iterable[Problem], cause: Cause | None = None) -> tuple[Finding, ...]:
    """Return a finding for each distinct message, with its first line numbers and the names of all layers that have it.

    If `cause` is None, it is derived from the beginning of each message.
    """
    occurrences: dict[tuple[Cause, str], tuple[list[int], list[str]]] = {}  # lines and layers
    for problem in problems:
        message = problem.message
        causes: list[Cause] = [c for beginning, c in _CAUSES.items() if problem.message.startswith(beginning)]
        finding_cause: Cause = cause or (causes or ["shape"])[0]
        if finding_cause == "python":  # without the list of searched folders
            message = message.partition(";")[0]
        lines, layers = occurrences.setdefault((finding_cause, message), ([], []))
        if problem.line is not None and problem.line not in lines:
            lines.append(problem.line)
        if problem.layer is not None and problem.layer not in layers:
            layers.append(problem.layer)
    return tuple(
        Finding(finding_cause, f"{_format_lines(lines)}{message}", tuple(layers))
        for (finding_cause, message), (lines, layers) in occurrences.items()
    )


def _format_lines(lines: list[int]) -> str:
    """Return the beginning of a message about lines, such as "line 3: " or "lines 3, 9, 12 and 2 more: ".

    Without lines, return "".
    """
    return f"line{'s' * (len(lines) > 1)} {format_list(lines, 3)}: " if lines else ""


def format_outcome(report: Report, max_length: int) -> str:
    """Return the states in which a model loads, and what fails, such as "TRAIN; TEST FAILS" or "TRAIN; WEIGHTS FAIL".

    The text is "FAILS" if a net loads in no state, and "(settings)" for a solver whose file contains no net.

    Args:
        report: the report on the model.
        max_length: states with longer names together are counted instead, such as "3 states".
    """

    def shorten_states(states: list[str]) -> list[str]:
        return states if len(" ".join(states)) <= max_length else [f"{len(states)} states"]

    loading_states = " ".join(shorten_states([phase.state for phase in report.phases if phase.outcome == "loads"]))
    if not loading_states:
        words = ["FAILS"] * (not report.loads) + ["(settings)"] * (report.kind == "solver")
        return " ".join(words)
    failing_parts = shorten_states([phase.state for phase in report.phases if phase.outcome == "fails"])
    failing_parts += [("SETTINGS" if report.kind == "solver" else "TEXT")] * bool(report.findings)
    failing_parts += ["WEIGHTS"] * any(w.mismatched for phase in report.phases for w in phase.weights)
    is_singular = len(failing_parts) == 1 and not failing_parts[0].endswith(("SETTINGS", "WEIGHTS", " states"))
    return (
        f"{loading_states}; {', '.join(failing_parts)} {'FAILS' if is_singular else 'FAIL'}"
        if failing_parts
        else loading_states
    )


def distinct_phases(phases: tuple[PhaseReport, ...]) -> Iterator[PhaseReport]:
    """Yield each distinct report once, without weights and memory.

    Its `state` lists all states that have this report, such as "TRAIN, TEST".
    """
    for report, states in _merge_states((replace(p, state="", memory=None, weights=()), p.state) for p in phases):
        yield replace(report, state=states)


def distinct_weights(phases: tuple[PhaseReport, ...]) -> Iterator[tuple[WeightsReport, str]]:
    """Yield each distinct weights report once, with a text of the states in which it applies, such as "TRAIN, TEST"."""
    return _merge_states((match, phase.state) for phase in phases for match in phase.weights)


def _merge_states(reports: Iterable[tuple[R, str]]) -> Iterator[tuple[R, str]]:
    states: dict[R, str] = {}
    for report, state in reports:
        states[report] = f"{states[report]}, {state}" if report in states else state
    yield from states.items()
