"""Checks of model files: their kind, whether a net loads in each state (a phase with stages), and whether weights fit.

Many files are checked in worker processes. A crash or hang of one worker does not affect the others.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ...base.config import NetConfig
from ...base.errors import CaffejaxError, Problem, SchemaError, WeightsError
from ...base.glog import collect_warnings
from ...base.paths import find_file
from ...core.checkpoints.load_save import open_blobs
from ...core.checkpoints.match_by_name import match_blobs, mismatch_problems, no_match_problem
from ...core.graph import Graph
from ...core.graph.element_counts import count_elements
from ...core.graph.resolve import is_included
from ...core.schema import read_solver, read_valid_part
from ...core.schema.caffe_pb2 import NetParameter, SolverParameter
from ...core.schema.load import read_text
from ...core.schema.text import parse_valid_fields
from ...core.schema.tokens import Tokens
from ...core.solver import solver_param
from ..net_states import NamedState, has_no_data, list_net_states
from .check_report import Kind, PhaseReport, Report, WeightsReport, make_findings
from .model_files import detect_kind, find_weights, is_label_map
from .placeholder_sources import MissingSourceError, build_assumed_graphs, find_missing_files, has_missing_source

_FLOAT_BYTES = 4
_COPIES_OF_PARAMETERS = 3  # in training: the parameter, its gradient and its history
_COPIES_OF_ACTIVATIONS = 2  # in training: the activation and its gradient


def _as_list(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str | os.PathLike[str]]:
    return [paths] if isinstance(paths, str | os.PathLike) else list(paths)


def check_file(
    path: str | os.PathLike[str],
    weights: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    config: NetConfig = NetConfig(),
) -> Report:
    """Return a report on a net or a solver. No layer runs, and data sources need not exist.

    Args:
        path: a prototxt.
        weights: the weights file or files to compare with the net; default: the weights files in the folder of `path`
            with the same base name.
        config: settings for reading data sources that exist.
    """
    file = Path(path)
    try:
        text = read_text(file)
    except SchemaError as error:
        unreadable_kind: Kind = "other" if file.suffix == ".pt" else "unreadable"  # PyTorch's weights also end in .pt
        return Report(str(file), unreadable_kind, make_findings(error.problems, "text"))
    kind = detect_kind(text)
    with collect_warnings(f"{file}: ") as notes:
        try:
            if kind == "net":
                weights_paths = [Path(w) for w in _as_list(weights)] or find_weights(file)
                return _check_net(file, *read_valid_part(file), weights_paths, config, notes)
            if kind == "solver":
                return _check_solver(file, read_solver(file), config, notes)
        except CaffejaxError as error:
            return Report(str(file), kind, make_findings(error.problems, "text"), notes=tuple(notes))
    if len(Tokens(text)) == 1:
        return Report(str(file), "unreadable", make_findings([Problem("the file is empty")], "text"))
    if is_label_map(text):
        problems: tuple[Problem, ...] = (Problem("the file is a label map, with names of classes"),)
    else:
        _, problems = parse_valid_fields(text, NetParameter)
    problems = problems or (Problem("the file has no layers, no inputs and no solver settings"),)
    return Report(str(file), "other", make_findings(problems[:1], "text"))


def _check_net(
    file: Path,
    net: NetParameter,
    text_problems: Sequence[Problem],
    weights: Sequence[Path],
    config: NetConfig,
    notes: Sequence[str],
) -> Report:
    phases = tuple(_check_phase(file, net, state, weights, config, text_problems) for state in list_net_states(net))
    return Report(
        str(file),
        "net",
        make_findings(text_problems, "text"),
        _drop_repeated_phases(phases),
        tuple(dict.fromkeys(notes)),
    )


def _check_solver(file: Path, param: SolverParameter, config: NetConfig, notes: list[str]) -> Report:
    """Return the report on a solver: problems of its settings, and reports on the nets that its file contains.

    For a net in a different file, the report only notes whether this file exists.
    """
    problems: tuple[Problem, ...] = ()
    try:
        solver_param.check_solver(param, needs_net=False)
    except CaffejaxError as error:
        problems = error.problems
    nets: list[tuple[str, NetParameter]] = [("TEST", net) for net in param.test_net_param]
    nets += [("TRAIN", param.train_net_param)] if param.HasField("train_net_param") else []
    nets += [("T", param.net_param)] if param.HasField("net_param") else []  # for both phases
    phases = [
        _check_phase(file, net, state, (), config)
        for prefix, net in nets
        for state in list_net_states(net)
        if state.name.startswith(prefix)
    ]
    for name in (param.net, param.train_net, *param.test_net):
        if name:
            exists = os.path.exists(find_file(name, file.parent))
            notes.append(f"its net {name} is {'checked separately' if exists else 'missing'}")
    return Report(str(file), "solver", make_findings(problems, "setting"), tuple(phases), tuple(dict.fromkeys(notes)))


def _check_phase(
    file: Path,
    net: NetParameter,
    state: NamedState,
    weights: Sequence[Path],
    config: NetConfig,
    text_problems: Sequence[Problem] = (),
) -> PhaseReport:
    if has_no_data(net, state.message):
        return PhaseReport(state.name, "no data")
    first_report: PhaseReport | None = None
    try:
        candidates = build_assumed_graphs(net, state.message, file, config, text_problems, check_settings=True)
        for graph, _, assumed, is_guess in candidates:
            assumed = (*assumed, *_describe_missing_files(net, state, file.parent))
            report = _make_phase_report(state.name, graph, assumed, [compare_weights(graph, path) for path in weights])
            first_report = first_report or (replace(report, parameters=None, memory=None) if is_guess else report)
            if not weights or not any(w.mismatched for w in report.weights):
                return report if weights else first_report  # the first assumed size whose shapes fit the weights
    except MissingSourceError as reason:
        return PhaseReport(state.name, "loads", assumed=(f"{reason}; the layers after it were not checked",))
    except CaffejaxError as error:
        problems = [_name_file(p, file) for p in error.problems if p not in text_problems]
        return PhaseReport(state.name, "fails", make_findings(problems))
    assert first_report is not None  # build_assumed_graphs yields a graph or raises
    return first_report


def _name_file(problem: Problem, file: Path) -> Problem:
    """Return a problem of another file than the net's with the file's name in its message."""
    is_of_net = problem.file is None or Path(problem.file) == file
    return problem if is_of_net else replace(problem, message=f"{problem.file}: {problem.message}")


def _describe_missing_files(net: NetParameter, state: NamedState, folder: Path) -> list[str]:
    """Return a sentence for each missing file that a layer reads when it runs, such as a list of image sizes."""
    return [
        f"{field} '{path}' of layer '{layer.name}' ({layer.type}) does not exist"
        for layer in net.layer
        if is_included(layer, state.message) and not has_missing_source(layer, folder)
        for field, path in find_missing_files(layer, folder).items()
    ]


def _make_phase_report(name: str, graph: Graph, assumed: tuple[str, ...], weights: Sequence[Any]) -> PhaseReport:
    host_layers = tuple(f"{x.name} ({x.type.name})" for x in graph.layers if x.type.on_host)
    num_inputs = sum(x.type.is_input for x in graph.layers)
    num_splits = sum(x.is_inserted_split for x in graph.layers)
    parameters, activations = count_elements(graph)
    is_training = graph.phase == "TRAIN" and any(graph.loss_weights)
    num_elements = (
        parameters * _COPIES_OF_PARAMETERS + activations * _COPIES_OF_ACTIVATIONS
        if is_training
        else parameters + activations
    )
    return PhaseReport(
        name,
        "loads",
        assumed=assumed,
        compiled=len(graph.layers) - len(host_layers) - num_inputs - num_splits,
        on_host=host_layers,
        parameters=parameters,
        memory=num_elements * _FLOAT_BYTES,
        weights=tuple(weights),
    )


def _drop_repeated_phases(phases: Sequence[PhaseReport]) -> tuple[PhaseReport, ...]:
    """Drop each report on a phase with stages that equals the report on the same phase without stages."""
    reports_without_stages = {phase.state: phase for phase in phases if "+" not in phase.state}
    return tuple(
        p for p in phases if "+" not in p.state or not _are_equal(p, reports_without_stages[p.state.partition("+")[0]])
    )


def _are_equal(a: PhaseReport, b: PhaseReport) -> bool:
    return (a.outcome, a.findings, a.compiled, a.parameters) == (b.outcome, b.findings, b.compiled, b.parameters)


def compare_weights(graph: Graph, path: Path) -> WeightsReport:
    """Compare the blobs in the weights file `path` with the blobs of a net, by layer name; return the report."""
    try:
        blobs, _, copies = open_blobs(path)
        _, report = match_blobs(graph, blobs, path, stores_copies=copies)
    except WeightsError as error:
        return WeightsReport(str(path), mismatched=make_findings(error.problems, "weights"))
    findings = make_findings([replace(p, file=None) for p in mismatch_problems(report)], "weights")
    if not report.loaded and not findings and report.missing:
        findings = make_findings([replace(no_match_problem(graph, blobs, path), file=None)], "weights")
    return WeightsReport(str(path), len(report.loaded), findings, report.missing, len(report.unused))


_START_TIMEOUT = 120  # seconds


class _Worker:
    """One worker process. It starts on first use, and restarts after a crash or a hang."""

    def __init__(self, imports: Sequence[str]) -> None:
        self._imports = imports
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection

    def check(self, path: Path, weights: Sequence[str], config: NetConfig, timeout: float) -> Report:
        """Return the report on a file. If the process crashes or exceeds `timeout` seconds, the report says so."""
        try:
            self._start()
            self._pipe.send((os.fspath(path), list(weights), config))
            report = self._receive(timeout)
        except TimeoutError:
            self.end(hangs=True)
            return _make_crash_report(
                path, f"is still being checked after {timeout:g} s; raise --timeout to wait longer"
            )
        except (EOFError, OSError, pickle.UnpicklingError):
            code = self.end()
            return _make_crash_report(path, f"the process that checked it ended with code {code}")
        assert isinstance(report, Report)
        return report

    def end(self, hangs: bool = False) -> int | None:
        """End the process and return its exit code; kill it if `hangs` is True."""
        process, self._process = self._process, None
        if process is None:
            return None
        self._pipe.close()  # the process ends when its pipe is closed
        with suppress(subprocess.TimeoutExpired):
            return process.wait(0 if hangs else 2)
        process.kill()
        return process.wait()

    def _start(self) -> None:
        if self._process is None:
            folders = [p for p in (_get_package_folder(), os.environ.get("PYTHONPATH")) if p]
            environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(folders)}
            self._pipe, child_end = Pipe()
            with child_end:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-c",
                        f"from {__name__} import serve_pipe; serve_pipe({child_end.fileno()})",
                        *self._imports,
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,  # of users' modules
                    stderr=subprocess.DEVNULL,
                    pass_fds=[child_end.fileno()],
                    env=environment,
                )
            self._receive(_START_TIMEOUT)

    def _receive(self, timeout: float) -> Any:
        if not self._pipe.poll(min(timeout, 2e6)):  # the system call counts milliseconds in 31 bits
            raise TimeoutError
        return self._pipe.recv()


def check_files(
    paths: Sequence[str | os.PathLike[str]],
    weights: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    *,
    jobs: int | None = None,
    timeout: float = 120,
    config: NetConfig = NetConfig(),
    imports: Sequence[str] = (),
) -> Iterator[Report]:
    """Check many files in parallel; yield the reports in the order of the files, as they become available.

    Args:
        paths: the files.
        weights: see `check_file`.
        jobs: number of processes; default: the number of cores.
        timeout: the time limit for each file, in seconds.
        config: settings for reading data sources that exist.
        imports: modules that each process imports first, such as those that register layer types.
    """
    model_paths, weights_paths = [Path(path) for path in paths], [os.fspath(w) for w in _as_list(weights)]
    num_workers = max(1, min(jobs or os.cpu_count() or 1, len(model_paths)))
    idle_workers: SimpleQueue[_Worker] = SimpleQueue()
    workers = [_Worker(imports) for _ in range(num_workers)]
    for worker in workers:
        idle_workers.put(worker)

    def check(path: Path) -> Report:
        worker = idle_workers.get()
        try:
            return worker.check(path, weights_paths, config, timeout)
        finally:
            idle_workers.put(worker)

    with ThreadPoolExecutor(num_workers) as threads:
        try:
            yield from threads.map(check, model_paths)
        finally:
            threads.shutdown(wait=True, cancel_futures=True)
            for worker in workers:
                worker.end()


def _make_crash_report(path: Path, message: str) -> Report:
    return Report(os.fspath(path), "net", make_findings([Problem(message)], "crash"))


def _get_package_folder() -> str:
    return str(Path(__file__).parents[3])


def serve_pipe(pipe_number: int) -> None:
    """Import the modules named on the command line, and answer requests from a pipe until it is closed.

    `pipe_fd` is the file number of the pipe. Each request is `(path, weights, config)`; the answer is a
    report.
    """
    for module in sys.argv[1:]:
        importlib.import_module(module)
    from .check import check_file

    pipe = Connection(pipe_number)
    pipe.send("ready")
    while True:
        try:
            path, weights, config = pipe.recv()
        except (EOFError, ConnectionError):
            return
        try:
            report = check_file(path, weights, config)
        except Exception as error:  # users' modules may raise any exception
            message = f"checking it raised {type(error).__name__}: {error}"
            report = Report(path, "net", make_findings([Problem(message)], "crash"))
        pipe.send(report)
