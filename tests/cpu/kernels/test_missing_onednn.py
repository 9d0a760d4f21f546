"""Without oneDNN, one line is logged."""

import logging

import jax.numpy as jnp
import pytest

from caffejax.cpu.kernels import onednn


def test_the_reason_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(onednn, "unavailable_reason", lambda: "it is not there")
    onednn._is_callable.cache_clear()
    try:
        with caplog.at_level(logging.INFO, logger="caffejax"):
            assert not onednn.supports(jnp.ones(2))
            assert not onednn.supports(jnp.ones(3))
    finally:
        onednn._is_callable.cache_clear()
    assert caplog.messages == ["Convolutions and matrix products are computed by XLA, which is slower: it is not there"]
