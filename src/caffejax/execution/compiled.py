"""A runner that compiles each part by itself: for nets with layers on the host.

Host layers may give tops of other shapes each time, and what follows them is compiled for each shape it meets. Each
compilation that new shapes need is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import LayerError
from ..kernels import compiling
from ..layers.rows import trimmed
from ..options import Kernels
from .running import Given, Result, compute
from .schedule import Part

log = logging.getLogger("caffejax.net")


class CompiledParts:
    """Runs each part compiled, of schedules of one graph; for concrete arrays only, also under jax.grad.

    Args:
        kernels: the operations' formulation.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._compiled: dict[Any, Any] = {}
        self._seen: dict[Any, set[Any]] = {}  # by a part's key: numbers of rows, or shapes of all that is read

    def __call__(
        self, part: Part, given: Given, before: Mapping[str, jax.Array], keep: frozenset[str] | None = None
    ) -> Result:
        """Run a part."""
        run = self._function(part, keep)
        rows = {len(v) for name, v in before.items() if name in part.bucketed_inputs and not given.taps}
        if len(rows) != 1:
            self._log_shapes(part, before)
            return trimmed_tops(part, run(given, before)) if part.how == "trimmed" else run(given, before)
        (n,) = rows
        size = 1 << (n - 1).bit_length() if n else 1
        seen = self._seen.setdefault(part.key, set())
        if size not in seen:
            seen.add(size)
            log.info("Compiling layers %s for up to %d rows (%d sizes so far)", _names(part), size, len(seen))

        def filled(v: jax.Array) -> jax.Array:
            return jnp.pad(v, [(0, size - n)] + [(0, 0)] * (v.ndim - 1))

        result = run(given, {name: filled(v) if name in part.bucketed_inputs else v for name, v in before.items()})
        return result._replace(values={name: v[:n] for name, v in result.values.items()})

    def _function(self, part: Part, keep: frozenset[str] | None) -> Any:
        key = part.key, keep
        if key not in self._compiled:
            function = partial(compute, part, keep=keep)
            self._compiled[key] = function if part.how == "host" else compiling.jit(function, self._kernels)
        return self._compiled[key]

    def _log_shapes(self, part: Part, before: Mapping[str, jax.Array]) -> None:
        """Say so when other shapes than the first have to be compiled."""
        seen = self._seen.setdefault(part.key, set())
        shapes = tuple(v.shape for v in before.values())
        if part.how != "traced" or shapes in seen:
            return
        seen.add(shapes)
        if len(seen) > 1:
            text = ", ".join(f"{name} {shape}" for name, shape in zip(before, shapes, strict=True))
            log.info("Compiling layers %s for %s (%d shapes so far)", _names(part), text, len(seen))


def trimmed_tops(part: Part, result: Result) -> Result:
    """Return what a part of layers with padded tops gives without the rows of padding.

    Raises:
        LayerError: under a transformation, in which rows cannot be counted.
    """
    tops = {top for layer in part.layers for top in layer.tops}
    if any(isinstance(v, jax.core.Tracer) for name, v in result.values.items() if name in tops):
        with part.layers[0].located():
            raise LayerError(
                "stands before layers on the host, and cannot be compiled: call the net outside of jax.jit"
            )
    return result._replace(values={name: trimmed(v) if name in tops else v for name, v in result.values.items()})


def _names(part: Part) -> str:
    return f"{part.layers[0].name} .. {part.layers[-1].name}"
