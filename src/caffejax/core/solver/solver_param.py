"""Validation of the settings in a SolverParameter, and reading of its nets and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...base.config import AP_VERSIONS, EVAL_TYPES, NetConfig
from ...base.errors import (
    GraphError,
    SchemaError,
    SolverError,
    WeightsError,
    check_all,
    did_you_mean,
    locate_errors,
    raise_if_any,
)
from ...base.human_readable import format_count
from ...base.paths import check_exist, find_file, split_commas
from ..graph import build_graph
from ..graph.resolve import EXCLUDED_END
from ..program.net import Net
from ..schema import ignored_fields, read_valid_part, unknown_settings
from ..schema.caffe_pb2 import TEST, TRAIN, NetParameter, NetState, SolverParameter
from .lr_schedules import check_policy, find_missing_fields
from .reporting import log
from .snapshots import check_folder, check_snapshot, snapshot_prefix
from .update_rules import FORK_UPDATE_SETTINGS, check_rule

_ALLOWED_VALUES = {
    "eval_type": EVAL_TYPES,
    "ap_version": AP_VERSIONS,
    "momentum_policy": ("fixed", "poly", "opt"),
    "weight_decay_policy": ("fixed", "poly"),
    "larc_policy": ("scale", "clip"),
    "regularization_type": ("L1", "L2", "NONE"),
}
# the supported settings of forks; other settings cause a warning and are ignored, or cause an error
_SUPPORTED_SETTINGS = (*FORK_UPDATE_SETTINGS, "ap_version", "eval_type", "show_per_class_result", "test_offset")
_TRAIN_SOURCES = ("net", "net_param", "train_net", "train_net_param")

_NO_NET = f"the train net is missing; set one of {', '.join(_TRAIN_SOURCES)}"


@dataclass(frozen=True)
class NetSettings:
    """The settings of a solver's net.

    Attributes:
        message: the net's definition.
        state: the phase, level and stages for which the net is built.
        file: the file of the definition, or None if the solver contains it.
        state_field: the solver's field that sets levels and stages: "train_state" or "test_state".
    """

    message: NetParameter
    state: NetState
    file: str | None
    state_field: str = "train_state"

    def build(self, config: NetConfig) -> Net:
        """Build the net.

        Raises:
            CaffejaxError: if the net cannot be built; see `caffejax.Net`.
        """
        try:
            return Net(self.message, state=self.state, file=self.file, config=config)
        except GraphError as error:
            flags = " or --stage and --level" if self.state_field == "train_state" else ", not by --stage and --level"
            hint = f"; its stages and level are set by the solver's {self.state_field}{flags}"
            raise GraphError(
                replace(p, message=p.message + hint) if p.message.endswith(EXCLUDED_END) else p for p in error.problems
            ) from error


def check_solver(
    param: SolverParameter, file: str | None = None, needs_net: bool = True, needs_update: bool = True
) -> None:
    """Validate a solver's settings, and log a warning for each setting that is ignored.

    Args:
        param: the settings.
        file: the solver's file, for messages.
        needs_net: whether a solver without a train net is an error. MyCaffe's solver files name no net, so only
            training requires a net.
        needs_update: whether the rule and the learning rate are checked, which a user's optimizer replaces.

    Raises:
        SolverError: if Caffe would reject a setting. The message names each such setting and the reason.
    """
    problems = [*check_policy(param), *check_rule(param)] if needs_update else []
    problems += _find_other_problems(param)
    if needs_net and not any(map(param.HasField, _TRAIN_SOURCES)):
        problems.append(_NO_NET)
    raise_if_any(SolverError, problems, file)
    for message in find_missing_fields(param) if needs_update else ():
        log.warning("%s%s", f"{file}: " if file else "", message)
    for setting, reason in ignored_fields(param):
        log.warning("%s%s is ignored: %s", f"{file}: " if file else "", setting, reason)


def _find_other_problems(param: SolverParameter) -> Iterator[str]:
    sources = [f for f in _TRAIN_SOURCES if param.HasField(f)]
    if len(sources) > 1:
        yield f"several train nets are set: {', '.join(sources)}; keep one of them"
    for setting in unknown_settings(param, _SUPPORTED_SETTINGS):
        yield f"setting {setting} is not supported; BVLC Caffe does not have it either"
    if param.clamp_weights_lower > param.clamp_weights_upper:
        limits = f"{param.clamp_weights_lower:g} and {param.clamp_weights_upper:g}"
        yield f"clamp_weights_lower must not exceed clamp_weights_upper, but they are {limits}"
    if "poly" in (param.momentum_policy, param.weight_decay_policy) and param.max_iter <= 0:
        yield f"a momentum_policy or weight_decay_policy 'poly' needs a positive max_iter, not {param.max_iter}"
    for name in ("max_iter", "display", "snapshot", "test_interval"):
        if getattr(param, name) < 0:
            yield f"{name} must not be negative, but is {getattr(param, name)}"
    if any(n < 0 for n in param.test_iter):
        yield f"test_iter must not be negative, but is {list(param.test_iter)}"
    if param.iter_size < 1:
        explanation = ": Caffe divides by it, and all parameters become NaN" if param.iter_size == 0 else ""
        yield f"iter_size must be 1 or more, not {param.iter_size}{explanation}"
    if param.average_loss < 1:
        yield f"average_loss must be 1 or more, not {param.average_loss}"
    for name, allowed_values in _ALLOWED_VALUES.items():
        if (value := getattr(param, name)) not in allowed_values and (
            name != "regularization_type" or param.weight_decay
        ):
            hint = did_you_mean(value, allowed_values)
            yield f"unknown {name} '{value}'; it must be {' or '.join(allowed_values)}{hint}"
    num_named, num_tests = len(_test_sources(param)), len(param.test_iter)
    has_net = param.HasField("net") or param.HasField("net_param")
    # test_iter then has no effect, and old forks allow it; MyCaffe's solvers name no net at all
    is_untested = not (num_named or has_net) and not (param.test_interval and sources)
    if not is_untested and (num_tests < num_named or (num_tests > num_named and not has_net)):
        nets = format_count(num_named, "test net")
        yield f"test_iter must be set once per test net, but is set {num_tests} times for {nets}"
    elif param.test_state and len(param.test_state) != num_tests:
        nets = format_count(num_tests, "test net")
        yield f"test_state must be set once per test net, but is set {len(param.test_state)} times for {nets}"
    if num_tests and param.test_interval <= 0 and not is_untested:
        hint = "; remove test_iter to train without tests" if not any(param.test_iter) else ""
        yield f"test_interval must be positive if there are test nets, but is {param.test_interval}{hint}"


def read_train_net(param: SolverParameter, folder: Path | None) -> NetSettings:
    """Read the settings of the train net. Its NetState merges phase TRAIN, the net's own state and train_state.

    Args:
        param: the solver's settings.
        folder: the folder of the solver's file, in which files are also looked up, or None.

    Raises:
        SchemaError: if the net's file cannot be read.
        SolverError: if the solver names no net, which is the case in MyCaffe's solver files.
    """
    for field in _TRAIN_SOURCES:
        if param.HasField(field):
            return _read_settings(field, getattr(param, field), folder, "train_state", param.train_state)
    raise SolverError(_NO_NET)


def read_test_nets(param: SolverParameter, folder: Path | None) -> list[NetSettings]:
    """Read the settings of the test nets, in Caffe's order.

    The order is: each test_net_param, each test_net, and then `net` or `net_param` for each remaining test_iter.
    """
    sources = _test_sources(param)
    if not (sources or param.HasField("net") or param.HasField("net_param")):
        return []  # test_iter has no effect
    net_source = ("net", param.net) if param.HasField("net") else ("net_param", param.net_param)
    sources += [net_source] * (len(param.test_iter) - len(sources))
    states = list(param.test_state) or [NetState()] * len(sources)
    return [_read_settings(*s, folder, "test_state", state) for s, state in zip(sources, states, strict=True)]


def _test_sources(param: SolverParameter) -> list[tuple[str, Any]]:
    sources: list[tuple[str, Any]] = [("test_net_param", net) for net in param.test_net_param]
    return sources + [("test_net", file) for file in param.test_net]


def _find_file(field: str, source: str, folder: Path | None) -> str:
    file = str(find_file(source, folder))
    if not os.path.exists(file):  # also False for a text that is too long for a file name
        alternative = f" or in the solver's folder {folder}" if folder is not None else ""
        raise SchemaError(f"its {field} is '{source}', but there is no such file in the working directory{alternative}")
    return file


def _read_settings(
    field: str, source: str | NetParameter, folder: Path | None, state_field: str, solver_state: NetState
) -> NetSettings:
    file = None if isinstance(source, NetParameter) else _find_file(field, source, folder)
    message, text_problems = read_valid_part(Path(file) if file else source)
    state = NetState(phase=TRAIN if state_field == "train_state" else TEST)
    for net_state in (message.state, solver_state):  # stages are appended, a phase or level is replaced
        state.MergeFrom(net_state)
    if text_problems:
        # raises an error with all problems of the net
        build_graph(message, state, file=file, text_problems=text_problems)
    return NetSettings(message, state, file, state_field)


def find_weights_files(param: SolverParameter, file: Path | None) -> list[Path]:
    """Return the weight files that the setting `weights` names, in lists separated by commas."""
    folder = file.parent if file else None
    return [find_file(name, folder) for entry in param.weights for name in split_commas(entry)]


def check_files(
    param: SolverParameter,
    file: Path | None,
    weights: Sequence[str | os.PathLike[str]],
    snapshot: str | os.PathLike[str] | None = None,
) -> None:
    """Check that the files of nets, weights and the snapshot exist, and that new snapshots can be written.

    Args:
        param: the solver's settings.
        file: the solver's file, or None if the solver was not read from a file.
        weights: the weight files that will be loaded.
        snapshot: the snapshot that will be restored, or None.

    Raises:
        SchemaError, WeightsError, SolverError: if files are missing or cannot be written. The message names each of
            them.
    """
    folder = file.parent if file else None

    def check_net_files() -> None:
        sources = [(f, getattr(param, f)) for f in _TRAIN_SOURCES if param.HasField(f)] + _test_sources(param)
        files = dict.fromkeys((field, source) for field, source in sources if isinstance(source, str))
        with locate_errors(file=os.fspath(file) if file else None):
            check_all(*(partial(_find_file, field, source, folder) for field, source in files))

    checks: list[Callable[[], object]] = [
        check_net_files,
        partial(check_exist, weights, WeightsError),
    ]
    if snapshot is not None:
        checks.append(partial(check_snapshot, snapshot))
    if param.snapshot:
        checks.append(partial(check_folder, snapshot_prefix(param, file)))
    check_all(*checks)
