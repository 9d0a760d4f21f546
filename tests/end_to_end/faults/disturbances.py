"""Random faults drawn from a seed: each kind in turn, at a random moment."""

import errno
import random
import signal
from collections import Counter
from dataclasses import dataclass, field

from failing_file_system import WRITES, Fault

_DISK_FULL_KINDS, _DENIED_KINDS = "cwm", "cnmu"  # what fails on a full disk, and where one may not write
# lines of the log after which a phase begins; the seconds in which something happens then
PHASES = {
    "start": ("", 2.5),
    "compile": ("Solving", 0.4),
    "training": ("Iteration 0", 0.3),
    "snapshot": ("Snapshotting solver state to checkpoint", 0.1),
    "test": ("Testing net", 0.1),
    "end": ("Optimization Done", 0.4),
}
_REMOVE_COMMAND = "for i in 1 2 3; do rm -rf $ROOT/%s 2>/dev/null; done"  # again, where something was written meanwhile
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
KINDS = (
    *("kill in an operation", "kill in half a write", "kill at a moment", "disk full", "input/output error"),
    *("not allowed", "read-only", "folder removed", "folder moved", "clock set back", "signal in a phase"),
    *("signal in an operation", "second trainer", "read error"),
)


@dataclass(frozen=True)
class SignalMoment:
    """A signal, some time after a line of the log."""

    signal_number: int
    phase: str
    delay: float
    num_signals: int = 1


@dataclass(frozen=True)
class Disturbance:
    """How one run of the trainer is disturbed.

    Attributes:
        fault: what the file system does.
        moment: when a signal comes from outside.
        has_second_trainer: whether another trainer starts with the same prefix.
        flags: of the command line.
    """

    fault: Fault | None = None
    moment: SignalMoment | None = None
    has_second_trainer: bool = False
    flags: tuple[str, ...] = field(default=())


def draw_disturbances(seed: int, operations: list[str]) -> tuple[str, list[Disturbance]]:
    """Return the kind of fault for a seed, and disturbances by such faults for one to three runs.

    Args:
        seed: consecutive seeds give the kinds in turn.
        done: the letters of the operations of an undisturbed run.
    """
    kind, rng = KINDS[seed % len(KINDS)], random.Random(seed)
    return kind, [_draw_disturbance(kind, rng, Counter(operations)) for _ in range(rng.choice((1, 1, 2, 3)))]


def _draw_disturbance(kind: str, rng: random.Random, counts: Counter[str]) -> Disturbance:
    def draw_fault(action: str, kinds: str = WRITES, durations: tuple[int, ...] = (1,)) -> Fault:
        return Fault(action, rng.randint(1, sum(counts[k] for k in kinds)), kinds, rng.choice(durations))

    def draw_error(error_number: int, kinds: str) -> Disturbance:
        flags = ("--on_snapshot_error=continue",) * rng.randint(0, 1)
        return Disturbance(draw_fault(f"error={error_number}", kinds, (1, 5, 40, 0)), flags=flags)

    phase = rng.choice(tuple(PHASES))
    delay = rng.uniform(0, PHASES[phase][1])
    match kind:
        case "kill in an operation":
            return Disturbance(draw_fault("kill"))
        case "kill in half a write":
            return Disturbance(draw_fault("half", "w"))
        case "kill at a moment":
            return Disturbance(moment=SignalMoment(signal.SIGKILL, phase, delay))
        case "disk full":
            return draw_error(rng.choice((errno.ENOSPC, errno.EDQUOT)), _DISK_FULL_KINDS)
        case "input/output error":
            return draw_error(errno.EIO, rng.choice((WRITES, "w", "s", "n")))
        case "not allowed":
            return draw_error(errno.EACCES, _DENIED_KINDS)
        case "read-only":
            return draw_error(errno.EROFS, WRITES)
        case "folder removed":
            fault = draw_fault(f"run={_REMOVE_COMMAND % rng.choice(('x.orbax', 'x*', 'x.orbax/*'))}")
            return Disturbance(fault, flags=("--on_snapshot_error=continue",) * rng.randint(0, 1))
        case "folder moved":
            return Disturbance(draw_fault("run=mv $ROOT/x.orbax $ROOT.moved 2>/dev/null; rm -rf $ROOT.moved"))
        case "clock set back":
            # not within a checkpoint: tensorstore, which writes it, would wait until the time is made up
            return Disturbance(Fault(f"clock={rng.choice((2, 3600, 10**6, 10**9))}", rng.randint(1, 8)))
        case "signal in a phase":
            return Disturbance(moment=SignalMoment(rng.choice(_SIGNALS), phase, delay, rng.choice((1, 1, 2, 3))))
        case "signal in an operation":
            return Disturbance(draw_fault(f"signal={int(rng.choice(_SIGNALS))}"))
        case "second trainer":
            return Disturbance(has_second_trainer=True)
        case "read error":
            return Disturbance(Fault(f"error={errno.EIO}", rng.randint(1, 60), "or", rng.choice((1, 5, 0))))
    raise ValueError(kind)
