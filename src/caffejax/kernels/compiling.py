"""`jax.jit` with the compiler's options that suit nets, and with what was compiled kept on disk."""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from . import Kernels
from .blocks import keep_blocks

# convolutions by XLA's own kernels: its library, the default for both, is the faster one for matrix products only
_CPU_OPTIONS = ({"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT"},)


def jit(function: Callable[..., Any], kernels: Kernels, **options: Any) -> Callable[..., Any]:
    """`jax.jit`; for the fast kernels with compiler options, where it is the outermost one and runs on the CPU.

    Inside of jit, grad or vmap JAX takes no compiler options; there it is jax.jit.
    """
    keep_compiled()
    keep_blocks()
    inner = outer = jax.jit(function, **options)
    if kernels == "fast" and (found := compiler_options()):
        outer = jax.jit(function, compiler_options=found, **options)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _uncollected():
            try:
                return outer(*args, **kwargs)
            except ValueError:  # it may not be the outermost; any other error comes again
                if inner is outer:
                    raise
                return inner(*args, **kwargs)

    return call


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without Python's garbage collector: it finds nothing in what tracing makes, in a third of the time."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


@functools.cache
def keep_compiled() -> None:
    """Switches on JAX's persistent compilation cache: what took long to compile is not compiled again next time.

    It lies in `$CAFFEJAX_CACHE`, by default ~/.cache/caffejax; "off" leaves it to JAX's own settings, and where those
    name a folder it is that one.
    """
    chosen = os.environ.get("CAFFEJAX_CACHE", "")
    if chosen == "off" or jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    root = Path(chosen or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "caffejax").expanduser()
    # code for one processor may not run on another that shares the folder
    jax.config.update("jax_compilation_cache_dir", str(root / _processor()))
    if jax.config.values["jax_persistent_cache_min_compile_time_secs"] == 1:  # JAX's default
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def _processor() -> str:
    """A name for what code can be compiled to here."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [platform.processor()]
    known = sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    return f"{platform.machine()}-{hashlib.sha256(chr(10).join(known).encode()).hexdigest()[:8]}"


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
