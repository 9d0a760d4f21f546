"""`jax.jit` with the compiler's options that suit nets."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from . import Kernels

# convolutions by XLA's own kernels: its library, the default for both, is the faster one for matrix products only
_CPU_OPTIONS = ({"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT"},)


def jit(function: Callable[..., Any], kernels: Kernels, **options: Any) -> Callable[..., Any]:
    """`jax.jit`; for the fast kernels with compiler options, where it is the outermost one and runs on the CPU.

    Inside of jit, grad or vmap JAX takes no compiler options; there it is jax.jit.
    """
    inner = jax.jit(function, **options)
    if kernels == "reference" or not (found := compiler_options()):
        return inner
    outer = jax.jit(function, compiler_options=found, **options)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return outer(*args, **kwargs)
        except ValueError:  # it is not the outermost; any other error comes again
            return inner(*args, **kwargs)

    return call


@functools.cache
def compiler_options() -> dict[str, Any]:
    """The options that this jaxlib knows; their names are no promise of its makers."""
    if jax.default_backend() != "cpu":
        return {}
    return {k: v for option in _CPU_OPTIONS if _accepted(option) for k, v in option.items()}


def _accepted(option: dict[str, Any]) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options=option).lower().compile()
    except Exception:  # whatever a jaxlib raises for a name or value that it does not know
        return False
    return True
