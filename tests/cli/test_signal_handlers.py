"""Requests of signals to a training run."""

import argparse
import logging
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from caffejax.cli import signal_handlers


def test_a_second_sigint_ends_at_once_but_not_one_that_comes_with_the_first(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Schedulers may send one to a process and to its parent, which hands it on."""
    now, requests = [7.0], []
    monkeypatch.setattr(signal_handlers, "time", SimpleNamespace(monotonic=lambda: now[0]))
    solver: Any = SimpleNamespace(callbacks=[], request=requests.append)
    with signal_handlers.handle_signals(solver, argparse.Namespace(sigint_effect="stop", sighup_effect="snapshot")):
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
            now[0] += 0.9
        with caplog.at_level(logging.INFO, "caffejax"):
            solver.callbacks[0](solver)
        assert "SIGINT" in caplog.messages[0]
        assert "second Ctrl-C" in caplog.messages[0]
        assert requests == ["stop", "stop"]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
