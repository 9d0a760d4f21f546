"""The warning that devices wait for data: once, after enough iterations and time to know."""

import logging

import pytest

from caffejax.core.solver import reporting
from caffejax.core.solver.reporting import SlowDataWarning


@pytest.mark.parametrize(
    ("seconds", "wait", "iterations", "warns"),
    [
        (1.0, 0.11, 60, True),
        (1.0, 0.09, 600, False),
        (1.0, 0.5, 49, False),  # too few iterations
        (0.2, 0.1, 60, False),  # too short
        (0.004, 0.0009, 9000, False),  # a net that is too small for its device
    ],
)
def test_a_tenth_of_the_time_is_too_much(
    seconds: float,
    wait: float,
    iterations: int,
    warns: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each iteration takes these seconds, and waits this long. The first one, which is compiled, does not count."""
    now = 0.0
    monkeypatch.setattr(reporting.time, "perf_counter", lambda: now)
    warning = SlowDataWarning(workers=2)
    with caplog.at_level(logging.WARNING, logger="caffejax"):
        for i in range(iterations + 1):
            now = 100 + i * seconds
            warning.check(1 + i, 50 + i * wait)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == warns
    if warns:
        assert (
            "waited for data for 11 % of the last 50 iterations: read it in more processes than 2 (--work"
            in messages[0]
        )
