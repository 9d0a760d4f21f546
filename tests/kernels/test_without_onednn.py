"""Where oneDNN cannot be called, the log says so, once."""

import logging

import jax.numpy as jnp
import pytest

from caffejax.kernels import onednn


def test_the_reason_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(onednn, "missing", lambda: "it is not there")
    onednn._called.cache_clear()
    try:
        with caplog.at_level(logging.INFO, logger="caffejax"):
            assert not onednn.suits(jnp.ones(2))
            assert not onednn.suits(jnp.ones(3))
    finally:
        onednn._called.cache_clear()
    assert caplog.messages == ["Convolutions and products are XLA's, and slower: it is not there"]
