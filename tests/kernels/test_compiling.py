"""Garbage waits while a program is compiled."""

from __future__ import annotations

import gc

import jax
import pytest

from caffejax.kernels import compiling


def test_garbage_is_collected_again_after_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling.Jitted, "collecting", False)

    def failing(x: jax.Array) -> jax.Array:
        assert not gc.isenabled()
        raise TypeError("spoilt")

    with pytest.raises(TypeError, match="spoilt"):
        compiling.jit(failing, "fast")(1.0)
    assert gc.isenabled()
