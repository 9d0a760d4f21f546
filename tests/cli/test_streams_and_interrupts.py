"""The process of a command: closed standard streams, and Ctrl-C at awkward moments."""

import gc
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from caffejax.cli.signal_handlers import handle_ctrl_c

DIGITS = Path(__file__).parents[2] / "configs" / "digits"


def run_shell(command: str, folder: Path) -> int:
    return subprocess.run(["sh", "-c", command], cwd=folder, timeout=120, stdin=subprocess.DEVNULL).returncode


@pytest.mark.parametrize("redirection", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_no_exit_code(tmp_path: Path, redirection: str) -> None:
    python = f"exec {sys.executable} -m caffejax"
    assert run_shell(f"{python} summary absent {redirection}", tmp_path) == 1
    assert run_shell(f"{python} --version {redirection}", tmp_path) == 0


@pytest.mark.long
@pytest.mark.parametrize("redirection", ["2>&-", ">&-", "<&- >&- 2>&-"])
def test_training_with_closed_streams(tmp_path: Path, redirection: str) -> None:
    """Files that it opens must not take the streams' places: all that is written there would be written into them."""
    text = (DIGITS / "lenet_solver.prototxt").read_text().replace("max_iter: 1000", "max_iter: 2")
    text = text.replace('net: "', f'net: "{DIGITS}/').replace("snapshots/lenet", "x")
    (tmp_path / "solver.prototxt").write_text(text)
    assert run_shell(f"exec {sys.executable} -m caffejax train --solver=solver.prototxt {redirection}", tmp_path) == 0
    assert {p.name for p in tmp_path.glob("x*")} == {
        *("x.metrics.jsonl", "x.orbax", "x_iter_2.caffemodel", "x_iter_2.solverstate")
    }
    assert all(line.startswith("{") for line in (tmp_path / "x.metrics.jsonl").read_text().splitlines())


def interrupt_in_a_finalizer() -> None:
    class Thing:
        pass

    thing = Thing()
    weakref.finalize(thing, signal.raise_signal, signal.SIGINT)
    reference = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
    del thing
    gc.collect()
    assert reference() is None


def interrupt_in_an_import() -> None:
    import interrupted_module  # type: ignore[import-not-found]

    assert interrupted_module.is_complete


@pytest.mark.parametrize("interrupt", [interrupt_in_a_finalizer, interrupt_in_an_import])
def test_ctrl_c_in_imports_and_finalizers_is_delayed(
    interrupt: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "interrupted_module.py").write_text(
        "import signal; signal.raise_signal(signal.SIGINT); is_complete = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGALRM)]
    completed_calls = []

    def run_command() -> None:
        interrupt()
        completed_calls.append(True)
        signal.sigtimedwait(set(), 5)

    try:
        with pytest.raises(KeyboardInterrupt), handle_ctrl_c():
            run_command()
    finally:
        for signal_number, handler in zip((signal.SIGINT, signal.SIGALRM), handlers, strict=True):
            signal.signal(signal_number, handler)
    assert completed_calls
