"""A solver's settings: checked as a whole, and the nets they name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..debugging.average_precision import VERSIONS
from ..errors import Problem, SchemaError, SolverError, check_all, did_you_mean
from ..graph import build_graph
from ..paths import find
from ..schema import hints_in, read_what_is_right, unknown_settings
from ..schema.caffe_pb2 import NetParameter, NetState, SolverParameter
from ..sizes import counted
from . import policies, rules
from .report import log

_NAMES = {"eval_type": ("classification", "detection"), "ap_version": VERSIONS}
# of forks' settings, those that are followed; the rest are hints, or refused
_FOLLOWED = (
    *("ap_version", "eval_type", "larc", "larc_eta", "larc_policy", "min_lr", "plateau_winsize", "rampup_interval"),
    *("rampup_lr", "show_per_class_result", "stageiter", "stagelr", "warmup_iter", "warmup_start_lr"),
)
_TRAIN_SOURCES = ("net", "net_param", "train_net", "train_net_param")


@dataclass(frozen=True)
class NetSettings:
    """One net of a solver: its definition, its state, and the file it came from."""

    message: NetParameter
    state: NetState
    file: str | None


def check(param: SolverParameter, file: str | None = None) -> None:
    """Raise `SolverError` naming every setting that Caffe would refuse, and why."""
    problems = [*policies.problems(param), *rules.problems(param), *_other_problems(param)]
    if problems:
        raise SolverError([Problem(p, file=file) for p in problems])
    for setting, reason in hints_in(param):
        log.warning("%s%s is ignored: %s", f"{file}: " if file else "", setting, reason)


def _other_problems(param: SolverParameter) -> Iterator[str]:
    given = [f for f in _TRAIN_SOURCES if param.HasField(f)]
    if len(given) != 1:
        what = f"{', '.join(given)} are given" if given else "none is given"
        yield f"the train net must be one of {', '.join(_TRAIN_SOURCES)}: {what}"
    for setting in unknown_settings(param, _FOLLOWED):
        yield f"setting {setting} is not supported; BVLC Caffe does not have it either"
    if param.larc and param.larc_policy not in ("scale", "clip"):
        yield f"unknown larc_policy '{param.larc_policy}'; it is scale or clip"
    if param.weight_decay and param.regularization_type not in ("L1", "L2"):
        hint = did_you_mean(param.regularization_type, ("L1", "L2"))
        yield f"unknown regularization_type '{param.regularization_type}'; it is L1 or L2{hint}"
    for name in ("max_iter", "display", "snapshot", "test_interval"):
        if getattr(param, name) < 0:
            yield f"{name} must not be negative, but is {getattr(param, name)}"
    if any(n < 0 for n in param.test_iter):
        yield f"test_iter must not be negative: {list(param.test_iter)}"
    if param.iter_size < 1:
        zero = ": Caffe divides by it, and all parameters become NaN" if param.iter_size == 0 else ""
        yield f"iter_size must be 1 or more, not {param.iter_size}{zero}"
    if param.average_loss < 1:
        yield f"average_loss must be 1 or more, not {param.average_loss}"
    for name, known in _NAMES.items():
        if (value := getattr(param, name)) not in known:
            yield f"unknown {name} '{value}'; it is {' or '.join(known)}{did_you_mean(value, known)}"
    own, total = _own_test_nets(param), len(param.test_iter)
    generic = param.HasField("net") or param.HasField("net_param")
    untested = not (own or generic or param.test_interval)  # test_iter in forks older than its check
    if not untested and (total < own or (total > own and not generic)):
        yield f"test_iter must be given once per test net: {total} for {counted(own, 'test net')}"
    elif param.test_state and len(param.test_state) != total:
        yield f"test_state must be given once per test net: {len(param.test_state)} for {counted(total, 'test net')}"
    if total and param.test_interval <= 0 and not untested:
        yield "test_interval must be positive where there are test nets"


def _own_test_nets(param: SolverParameter) -> int:
    return len(param.test_net_param) + len(param.test_net)


def train_net(param: SolverParameter, folder: Path | None) -> NetSettings:
    """Read the net to train: phase TRAIN, the file's own stages, then train_state.

    Raises:
        SchemaError: if its file cannot be read.
    """
    (field,) = (f for f in _TRAIN_SOURCES if param.HasField(f))
    return _settings(field, getattr(param, field), folder, "TRAIN", param.train_state)


def test_nets(param: SolverParameter, folder: Path | None) -> list[NetSettings]:
    """Read the test nets in Caffe's order: test_net_param, test_net, then the train net as often as needed."""
    sources = _test_sources(param)
    if not (sources or param.HasField("net") or param.HasField("net_param")):
        return []  # whatever test_iter says
    generic = ("net", param.net) if param.HasField("net") else ("net_param", param.net_param)
    sources += [generic] * (len(param.test_iter) - len(sources))
    states = list(param.test_state) or [NetState()] * len(sources)
    return [_settings(*s, folder, "TEST", state) for s, state in zip(sources, states, strict=True)]


def check_net_files(param: SolverParameter, folder: Path | None) -> None:
    """Raise `SchemaError` naming every net file that is not there."""
    sources = [(f, getattr(param, f)) for f in _TRAIN_SOURCES if param.HasField(f)] + _test_sources(param)
    files = dict.fromkeys((field, source) for field, source in sources if isinstance(source, str))
    check_all(*(partial(_found, field, source, folder) for field, source in files))


def _test_sources(param: SolverParameter) -> list[tuple[str, Any]]:
    sources: list[tuple[str, Any]] = [("test_net_param", net) for net in param.test_net_param]
    return sources + [("test_net", file) for file in param.test_net]


def _found(field: str, source: str, folder: Path | None) -> str:
    file = str(find(source, folder))
    if not os.path.exists(file):  # nor if it is too long for a name
        beside = f" and in the solver's folder {folder}" if folder is not None else ""
        raise SchemaError(f"its {field}, {source}: no such file; looked for in the working directory{beside}")
    return file


def _settings(field: str, source: str | NetParameter, folder: Path | None, phase: Any, extra: NetState) -> NetSettings:
    file = None if isinstance(source, NetParameter) else _found(field, source, folder)
    message, wrong = read_what_is_right(Path(file) if file else source)
    state = NetState(phase=phase)
    for more in (message.state, extra):  # stages add up, a phase or level replaces
        state.MergeFrom(more)
    if wrong:
        build_graph(message, state, file=file, wrong=wrong)  # raises
    return NetSettings(message, state, file)
