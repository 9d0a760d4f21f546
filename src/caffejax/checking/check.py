"""Checks of model files: their kind, whether a net loads in each state, and whether weights fit.

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

from ..checkpoints.load_save import open_blobs
from ..checkpoints.match_by_name import match_blobs, mismatch_problems, nothing_matches
from ..config import DataConfig
from ..data.placeholder_sources import MissingSourceError, assumed_graphs
from ..debugging.memory_report import net_sizes
from ..errors import CaffejaxError, Problem, SchemaError, WeightsError
from ..glog import collect_warnings
from ..graph import Graph
from ..graph.resolve import State, has_no_data, net_states
from ..paths import find
from ..schema import read_solver, read_valid_part
from ..schema.caffe_pb2 import NetParameter, SolverParameter
from ..schema.load import read_text
from ..schema.text import parse_valid_fields
from ..schema.tokens import Tokens
from ..training import solver_param
from .check_report import Kind, PhaseReport, Report, WeightsReport, findings_of
from .model_files import find_weights, kind_of

_FLOAT = 4  # bytes of a float32
_TRAINED = 3  # numbers in memory for each parameter: the parameter, its gradient and its history
_KEPT = 2  # numbers in memory for each activation: the activation and its gradient


def check_file(
    path: str | os.PathLike[str], weights: Sequence[str | os.PathLike[str]] = (), data_config: DataConfig = DataConfig()
) -> Report:
    """Check a net or a solver. No layer runs, and missing data is not opened.

    Args:
        path: a prototxt.
        weights: weights files to compare with the net; default: files in the same folder with the same base name.
        data_config: how existing data is read.
    """
    file = Path(path)
    try:
        text = read_text(file)
    except SchemaError as error:
        unreadable: Kind = "other" if file.suffix == ".pt" else "unreadable"  # PyTorch's weights also end in .pt
        return Report(str(file), unreadable, findings_of(error.problems, "text"))
    kind = kind_of(text)
    with collect_warnings(f"{file}: ") as notes:
        try:
            if kind == "net":
                named = [Path(w) for w in weights] or find_weights(file)
                return _net_report(file, *read_valid_part(file), named, data_config, notes)
            if kind == "solver":
                return _solver_report(file, read_solver(file), data_config, notes)
        except CaffejaxError as error:
            return Report(str(file), kind, findings_of(error.problems, "text"), notes=tuple(notes))
    if len(Tokens(text)) == 1:
        return Report(str(file), "unreadable", findings_of([Problem("the file is empty")], "text"))
    _, problems = parse_valid_fields(text, NetParameter)
    reasons = problems[:1] or [Problem("it has neither layers and inputs nor settings of a solver")]
    return Report(str(file), "other", findings_of(reasons, "text"))


def _net_report(
    file: Path,
    net: NetParameter,
    wrong: Sequence[Problem],
    weights: Sequence[Path],
    data_config: DataConfig,
    notes: Sequence[str],
) -> Report:
    phases = tuple(_phase_report(file, net, state, weights, data_config, wrong) for state in net_states(net))
    return Report(str(file), "net", findings_of(wrong, "text"), _drop_repeated(phases), tuple(dict.fromkeys(notes)))


def _solver_report(file: Path, param: SolverParameter, data_config: DataConfig, notes: list[str]) -> Report:
    """Return the report on a solver: problems of its settings, and reports on the nets that its file contains.

    For a net in another file there is only a note whether the file exists.
    """
    problems: tuple[Problem, ...] = ()
    try:
        solver_param.check_solver(param, needs_net=False)
    except CaffejaxError as error:
        problems = error.problems
    inside: list[tuple[str, NetParameter]] = [("TEST", net) for net in param.test_net_param]
    inside += [("TRAIN", param.train_net_param)] if param.HasField("train_net_param") else []
    inside += [("T", param.net_param)] if param.HasField("net_param") else []  # both
    phases = [
        _phase_report(file, net, state, (), data_config)
        for start, net in inside
        for state in net_states(net)
        if state.name.startswith(start)
    ]
    for named in (param.net, param.train_net, *param.test_net):
        if named:
            exists = os.path.exists(find(named, file.parent))
            notes.append(f"its net {named} is {'checked separately' if exists else 'missing'}")
    return Report(str(file), "solver", findings_of(problems, "setting"), tuple(phases), tuple(dict.fromkeys(notes)))


def _phase_report(
    file: Path,
    net: NetParameter,
    state: State,
    weights: Sequence[Path],
    data_config: DataConfig,
    wrong: Sequence[Problem] = (),
) -> PhaseReport:
    if has_no_data(net, state.message):
        return PhaseReport(state.name, "no data")
    best: PhaseReport | None = None
    try:
        for graph, _, assumed, guessed in assumed_graphs(net, state.message, file, data_config, wrong):
            report = _loaded_report(state.name, graph, assumed, [weights_report(graph, path) for path in weights])
            best = best or (replace(report, parameters=0, memory=0) if guessed else report)
            if not weights or not any(w.mismatched for w in report.weights):
                return report if weights else best  # the first assumed size whose shapes fit the weights
    except MissingSourceError as reason:
        return PhaseReport(state.name, "loads", assumed=(f"{reason}; the layers after it were not checked",))
    except CaffejaxError as error:
        return PhaseReport(state.name, "fails", findings_of(p for p in error.problems if p not in wrong))
    assert best is not None  # assumed_graphs yields a graph or raises
    return best


def _loaded_report(name: str, graph: Graph, assumed: tuple[str, ...], weights: Sequence[Any]) -> PhaseReport:
    on_host = tuple(f"{x.name} ({x.type.name})" for x in graph.layers if x.type.on_host)
    n_inputs = sum(x.type.is_fed for x in graph.layers)
    splits = sum(x.inserted_split for x in graph.layers)
    parameters, activations = net_sizes(graph)
    training = graph.phase == "TRAIN" and any(graph.losses)
    numbers = parameters * _TRAINED + activations * _KEPT if training else parameters + activations
    return PhaseReport(
        name,
        "loads",
        assumed=assumed,
        compiled=len(graph.layers) - len(on_host) - n_inputs - splits,
        on_host=on_host,
        parameters=parameters,
        memory=numbers * _FLOAT,
        weights=tuple(weights),
    )


def _drop_repeated(phases: Sequence[PhaseReport]) -> tuple[PhaseReport, ...]:
    """Drop the reports on stages that equal the report on the same phase without stages."""
    plain = {phase.state: phase for phase in phases if "+" not in phase.state}
    return tuple(p for p in phases if "+" not in p.state or not _same(p, plain[p.state.partition("+")[0]]))


def _same(a: PhaseReport, b: PhaseReport) -> bool:
    return (a.outcome, a.findings, a.compiled, a.parameters) == (b.outcome, b.findings, b.compiled, b.parameters)


def weights_report(graph: Graph, path: Path) -> WeightsReport:
    """Return a comparison of the blobs in a weights file with a net's blobs. Layers match by name, as in loading."""
    try:
        stored, _, copies = open_blobs(path)
        _, report = match_blobs(graph, stored, path, copies=copies)
    except WeightsError as error:
        return WeightsReport(str(path), mismatched=findings_of(error.problems, "weights"))
    findings = findings_of([replace(p, file=None) for p in mismatch_problems(report)], "weights")
    if not report.loaded and not findings and report.missing:
        findings = findings_of([replace(nothing_matches(graph, stored, path), file=None)], "weights")
    return WeightsReport(str(path), len(report.loaded), findings, report.missing, len(report.unused))


_START = 120  # seconds for a process to start


class _Worker:
    """One worker process. It starts on first use, and restarts after a crash or a hang."""

    def __init__(self, imports: Sequence[str]) -> None:
        self._imports = imports
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection

    def check(self, path: Path, weights: Sequence[str], data_config: DataConfig, timeout: float) -> Report:
        """Return the report on a file. If the process crashes or exceeds `timeout` seconds, the report says so."""
        try:
            self._start()
            self._pipe.send((os.fspath(path), list(weights), data_config))
            report = self._reply(timeout)
        except TimeoutError:
            self.end(hangs=True)
            return _crash_report(path, f"is still being checked after {timeout:g} s; raise --timeout to wait longer")
        except (EOFError, OSError, pickle.UnpicklingError):
            code = self.end()
            return _crash_report(path, f"the process that checked it ended with code {code}")
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
            folders = [p for p in (_package_folder(), os.environ.get("PYTHONPATH")) if p]
            environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(folders)}
            self._pipe, other = Pipe()
            with other:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", f"from {__name__} import serve; serve({other.fileno()})", *self._imports],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,  # of users' modules
                    stderr=subprocess.DEVNULL,
                    pass_fds=[other.fileno()],
                    env=environment,
                )
            self._reply(_START)

    def _reply(self, timeout: float) -> Any:
        if not self._pipe.poll(timeout):
            raise TimeoutError
        return self._pipe.recv()


def check_files(
    paths: Sequence[str | os.PathLike[str]],
    weights: Sequence[str | os.PathLike[str]] = (),
    *,
    jobs: int | None = None,
    timeout: float = 120,
    data_config: DataConfig = DataConfig(),
    imports: Sequence[str] = (),
) -> Iterator[Report]:
    """Check many files in parallel; yield the reports in the order of the files, as they become available.

    Args:
        paths: the files.
        weights: as for `check_file`.
        jobs: number of processes; default: the number of cores.
        timeout: seconds for each file.
        data_config: how existing data is read.
        imports: modules that each process imports first, such as those that register layer types.
    """
    files, names = [Path(path) for path in paths], [os.fspath(w) for w in weights]
    n = max(1, min(jobs or os.cpu_count() or 1, len(files)))
    idle: SimpleQueue[_Worker] = SimpleQueue()
    workers = [_Worker(imports) for _ in range(n)]
    for worker in workers:
        idle.put(worker)

    def check(path: Path) -> Report:
        worker = idle.get()
        try:
            return worker.check(path, names, data_config, timeout)
        finally:
            idle.put(worker)

    with ThreadPoolExecutor(n) as threads:
        try:
            yield from threads.map(check, files)
        finally:
            threads.shutdown(wait=True, cancel_futures=True)
            for worker in workers:
                worker.end()


def _crash_report(path: Path, message: str) -> Report:
    return Report(os.fspath(path), "net", findings_of([Problem(message)], "crash"))


def _package_folder() -> str:
    return str(Path(__file__).parents[2])


def serve(pipe_number: int) -> None:
    """Import the modules named on the command line, and answer the requests of a pipe until it is closed.

    Each request, `(path, weights, reading)`, is answered with a report.
    """
    for module in sys.argv[1:]:
        importlib.import_module(module)
    from .check import check_file

    pipe = Connection(pipe_number)
    pipe.send("ready")
    while True:
        try:
            path, weights, data_config = pipe.recv()
        except (EOFError, ConnectionError):
            return
        try:
            report = check_file(path, weights, data_config)
        except Exception as error:  # users' modules may raise any exception
            message = f"checking it raised {type(error).__name__}: {error}"
            report = Report(path, "net", findings_of([Problem(message)], "crash"))
        pipe.send(report)
