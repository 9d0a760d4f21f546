"""A small training job that is disturbed and resumed until it finishes, and the check of its result."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from disturbances import PHASES, Disturbance, draw_disturbances
from failing_file_system import WRITES, Fault, compile_shim, read_operations

from caffejax.core.checkpoints.orbax import CheckpointFolder

DIGITS = Path(__file__).parents[3] / "configs" / "digits"
# arrays enough that some are still being written when one has failed
SCALES = "\n".join(
    f'layer {{ name: "scale{i}" type: "Scale" bottom: "ip" top: "ip" scale_param {{ bias_term: true }} }}'
    for i in range(4)
)
# all that a run must remember: crops and mirrors, the places in the data, dropout, momentum
NET = f"""
layer {{ name: "digits" type: "Data" top: "data" top: "label" include {{ phase: TRAIN }}
  transform_param {{ scale: 0.00390625 crop_size: 24 mirror: true }}
  data_param {{ source: "{DIGITS}/digits_train_lmdb" batch_size: 10 backend: LMDB }} }}
layer {{ name: "digits" type: "Data" top: "data" top: "label" include {{ phase: TEST }}
  transform_param {{ scale: 0.00390625 crop_size: 24 }}
  data_param {{ source: "{DIGITS}/digits_test_lmdb" batch_size: 10 backend: LMDB }} }}
layer {{ name: "drop" type: "Dropout" bottom: "data" top: "drop" }}
layer {{ name: "ip" type: "InnerProduct" bottom: "drop" top: "ip"
  inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }} }}
{SCALES}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""
MAX_ITER, SNAPSHOT_INTERVAL = 60, 15
SOLVER = f"""
net: "net.prototxt" base_lr: 0.01 lr_policy: "inv" gamma: 0.001 power: 0.75 momentum: 0.9
max_iter: {MAX_ITER} snapshot: {SNAPSHOT_INTERVAL} snapshot_prefix: "x" solver_mode: CPU random_seed: 5 display: 5
test_iter: 2 test_interval: 20
"""
_TIMEOUT = 300  # seconds; a run takes four on a machine that does nothing else
_LOG_LINE = re.compile(r"[IW]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ \w+\.py:\d+\] ")
_INPUTS = {"net.prototxt", "solver.prototxt"}
_OUTPUTS = re.compile(r"x\.metrics\.jsonl|x\.orbax|x_iter_(\d+)\.(caffemodel|solverstate)")


@dataclass(frozen=True)
class RunEnd:
    """The end of a run: its exit code, the lines on stderr, and its stdout."""

    code: int
    stderr_lines: tuple[str, ...]
    stdout: str


class Job:
    """Training jobs in a folder, whose results must all equal the results of the undisturbed job.

    Attributes:
        operations: the letters of the file operations of the undisturbed run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._library = folder, compile_shim(folder)
        undisturbed_folder, log = self._make_root("undisturbed"), folder / "undisturbed.log"
        counting_fault = Fault("", 0)
        run_end = self._train(undisturbed_folder, Disturbance(counting_fault), FAULTS_LOG=str(log))
        assert run_end.code == 0, run_end.stderr_lines
        self._expected = _read_caffe_files(undisturbed_folder), _read_checkpoint(undisturbed_folder)
        self.operations = [kind for kind, _ in read_operations(log)]
        assert set(WRITES) <= set(self.operations), "the shim sees every kind of operation"

    def find_problems(self, seed: int) -> list[str]:
        """Disturb a job as the seed says, resume it, and return all that is not as it should be."""
        kind, disturbances = draw_disturbances(seed, self.operations)
        root = self._make_root(f"run{seed}")
        problems = []
        is_complete = False
        for run_index, disturbance in enumerate([*disturbances, *[Disturbance()] * 3]):
            location = f"seed {seed}, {kind}, run {run_index} ({disturbance})"
            previous_leftovers = _list_leftover_files(root)
            try:
                run_end = self._train(root, disturbance)
            except subprocess.TimeoutExpired:
                return [*problems, f"{location}: hangs"]
            problems += [
                f"{location}: {problem}" for problem in _find_problems(run_end, disturbance, root, previous_leftovers)
            ]
            if is_complete := _is_complete(root, run_end):
                break
        if not is_complete:
            return [*problems, f"seed {seed}, {kind}: training does not come to its end: {run_end.stderr_lines[-1:]}"]
        problems += [f"seed {seed}, {kind}: {problem}" for problem in self._find_differences(root)]
        return problems

    def _find_differences(self, root: Path) -> list[str]:
        files, checkpoint = self._expected
        result = [f"{name} differs" for name, content in _read_caffe_files(root).items() if content != files[name]]
        if (actual := _read_checkpoint(root)) != checkpoint:
            result.append(f"the checkpoint differs: {actual[1]}, not {checkpoint[1]}")
        return result

    def _make_root(self, name: str) -> Path:
        root = self._folder / name
        root.mkdir()
        (root / "net.prototxt").write_text(NET)
        (root / "solver.prototxt").write_text(SOLVER)
        return root

    def _train(self, root: Path, disturbance: Disturbance, **variables: str) -> RunEnd:
        if disturbance.fault is not None:
            fault = replace(disturbance.fault, action=disturbance.fault.action.replace("$ROOT", str(root)))
            variables |= fault.make_variables(self._library, root)
        first_process = self._start(root, disturbance.flags, **variables)
        lines: list[str] = []
        reader = threading.Thread(target=_read_lines, args=(first_process, lines), daemon=True)
        reader.start()
        if disturbance.moment is not None:
            marker, _ = PHASES[disturbance.moment.phase]
            _wait_for_line(first_process, lines, marker)
            time.sleep(disturbance.moment.delay)
            for _ in range(disturbance.moment.num_signals):
                first_process.send_signal(disturbance.moment.signal_number)
                time.sleep(0.01)
        second_process = None
        if disturbance.has_second_trainer:
            _wait_for_line(first_process, lines, "Iteration 0")
            first_process.send_signal(signal.SIGSTOP)  # so that it holds the lock as long as it takes
            second_process = self._start(root, disturbance.flags)
        second_stderr = ""
        try:
            if second_process is not None:
                _, second_stderr = second_process.communicate(timeout=_TIMEOUT)
                first_process.send_signal(signal.SIGCONT)
            code = first_process.wait(_TIMEOUT)
            reader.join(_TIMEOUT)
        finally:
            for process in (first_process, second_process):
                if process is not None and process.poll() is None:
                    process.kill()
        assert first_process.stdout is not None
        stdout = first_process.stdout.read()
        for process in (first_process, second_process):
            if process is not None:
                process.communicate()  # closes its pipes
        return RunEnd(code, (*lines, *(f"second: {line}" for line in second_stderr.splitlines())), stdout)

    def _start(self, root: Path, flags: tuple[str, ...], **variables: str) -> subprocess.Popen[str]:
        if _list_steps(root):
            flags = (*flags, "--snapshot=x.orbax")
        return subprocess.Popen(
            [sys.executable, "-m", "caffejax", "train", "--solver=solver.prototxt", "--keep_last=2", *flags],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "JAX_PLATFORMS": "cpu",
                "JAX_COMPILATION_CACHE_DIR": str(self._folder / "cache"),  # one compilation for all
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                **variables,
            },
        )


def _read_lines(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stderr is not None
    lines.extend(line.rstrip("\n") for line in process.stderr)


def _wait_for_line(process: subprocess.Popen[str], lines: list[str], marker: str) -> None:
    """Wait until a line with the marker is said, or the process ends."""
    while process.poll() is None and not any(marker in line for line in [*lines, ""]):
        time.sleep(0.002)


def _list_steps(root: Path) -> list[int]:
    return sorted(int(p.name) for p in root.glob("x.orbax/*") if p.name.isdigit())


def _is_complete(root: Path, run_end: RunEnd) -> bool:
    return run_end.code == 0 and MAX_ITER in _list_steps(root) and (root / f"x_iter_{MAX_ITER}.caffemodel").exists()


def _read_caffe_files(root: Path) -> dict[str, bytes]:
    """Return the content of Caffe's files of the last iteration."""
    return {p.name: p.read_bytes() for p in root.glob(f"x_iter_{MAX_ITER}.*")}


def _read_checkpoint(root: Path) -> tuple[object, object]:
    """The arrays and the record of the last checkpoint, which says itself whether it is whole."""
    folder = CheckpointFolder(root / "x.orbax")
    try:
        arrays, record = folder.restore(MAX_ITER)
    finally:
        folder.close()
    return _make_comparable(arrays), record


def _make_comparable(tree: object) -> object:
    return (
        {k: _make_comparable(v) for k, v in sorted(tree.items())}
        if isinstance(tree, dict)
        else (tree.dtype, tree.tobytes())
    )  # type: ignore[attr-defined]


def _find_problems(run_end: RunEnd, disturbance: Disturbance, root: Path, previous_leftovers: list[str]) -> list[str]:
    """Return the problems of a run's end, and of new files that it left behind."""
    first_lines = [line for line in run_end.stderr_lines if not line.startswith("second: ")]
    messages = [line for line in _drop_net_text(first_lines) if not _LOG_LINE.match(line)]
    result = []
    signal_codes = _signal_exit_codes(disturbance)
    if run_end.code not in {0, 1, 130, *signal_codes}:
        result.append(f"exit code {run_end.code}: {messages}")
    if run_end.stdout:
        result.append(f"stdout has {run_end.stdout!r}")
    # Python may end by the signal itself where it interrupts what `exec` runs; that is 130, too, for a shell
    if run_end.code == -2 and "cli" not in "".join(messages):
        messages = []  # of Python itself, before the program began
    expected = {1: (1,), 130: (1,), -2: (0, 1)}.get(run_end.code, (0,))
    if len(messages) not in expected or not all(line.startswith("caffejax: ") for line in messages):
        result.append(f"exit code {run_end.code}, and on stderr is {messages}")
    if disturbance == Disturbance() and run_end.code != 0:
        result.append(f"an undisturbed run ends with {run_end.code}: {messages}")
    if disturbance.has_second_trainer and not _is_refused(
        [line.removeprefix("second: ") for line in run_end.stderr_lines if line not in first_lines]
    ):
        result.append(f"the second trainer says {run_end.stderr_lines}")
    if run_end.code >= 0 and not _cannot_remove_files(disturbance.fault):
        previous_leftovers = [] if run_end.code == 0 else previous_leftovers  # one that has not come so far as to sweep
        result += [f"{name} is left behind" for name in _list_leftover_files(root) if name not in previous_leftovers]
    metrics = root / "x.metrics.jsonl"
    if metrics.exists():
        truncated_lines = sum(not _is_json(line) for line in metrics.read_text().splitlines())
        if truncated_lines > 3:
            result.append(f"{truncated_lines} lines of the metrics are cut")
    return result


def _drop_net_text(lines: list[str]) -> list[str]:
    """Lines without the text of the solver and of nets, which follows a line of the log; a kill may cut it short."""
    log_lines, in_net_text = [], False
    for line in lines:
        if _LOG_LINE.match(line) or line.startswith("caffejax: "):
            in_net_text = line.endswith("from parameters: ")
            log_lines.append(line)
        elif not in_net_text:
            log_lines.append(line)
    return log_lines


def _signal_exit_codes(disturbance: Disturbance) -> set[int]:
    """Exit codes of a run that a signal ended."""
    if disturbance.fault is not None and disturbance.fault.action in ("kill", "half"):
        return {-9}
    if disturbance.fault is not None and disturbance.fault.action.startswith("signal="):
        return {-int(disturbance.fault.action.removeprefix("signal="))}
    return {-int(disturbance.moment.signal_number)} if disturbance.moment is not None else set()


def _cannot_remove_files(fault: Fault | None) -> bool:
    """Return whether the trainer cannot remove its temporary files, so that only the next trainer can."""
    return (
        fault is not None
        and fault.action.startswith("error")
        and fault.duration != 1
        and bool({*"uo"} & {*fault.kinds})
    )


def _is_refused(lines: list[str]) -> bool:
    """Return whether a second trainer was refused in one line."""
    messages = [line for line in _drop_net_text(lines) if not _LOG_LINE.match(line)]
    return len(messages) == 1 and "another run trains with this snapshot prefix" in messages[0]


def _list_leftover_files(root: Path) -> list[str]:
    """Return the files that should not exist after training."""
    names = [p.name for p in root.iterdir() if p.name not in _INPUTS and not _OUTPUTS.fullmatch(p.name)]
    return names + [p.name for p in root.glob("x.orbax/*") if not p.name.isdigit()]


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
