"""Settings of the whole process: each a function, off until it is called.

Importing caffejax, building a net and calling it leave the process as it was. These functions do not: they change what
other libraries in the same process see as well, so the program that owns the process calls them. The command line
calls `tune_process`, which is all of those that make nets faster. All may be called again and at any time; what comes
too late to have an effect has none.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from .aliases import install

__all__ = [
    "alias_package",
    "compile_for_absent_devices",
    "hide_late_errors",
    "keep_compiled",
    "keep_memory",
    "sleep_between_calls",
    "trace_uncollected",
    "tune_process",
]

# of glibc's malloc.h: M_ARENA_MAX, M_MMAP_MAX, M_TRIM_THRESHOLD (never), M_TOP_PAD (bytes)
_MALLOC_OPTIONS = {-8: 1, -4: 0, -1: -1, -2: 64 << 20}
_keeps_memory = False


def tune_process() -> None:
    """Make nets of this process fast: keep what was compiled and used memory, sleep between calls, trace uncollected.

    Call it before the first net or solver is made; each of the four functions says what it changes. The command line
    calls it. Without `keep_compiled`, a solver in a notebook compiles its step again at each start of the process.
    """
    keep_memory()  # first: it must come before JAX's threads
    sleep_between_calls()
    keep_compiled()
    trace_uncollected()


def compile_for_absent_devices() -> None:
    """Let the compilers of TPUs and GPUs run where there are none: the command line's `plan` calls it.

    Call it before JAX is first used. JAX then sees CPUs only; no TPU is looked for, several processes may load libtpu
    at once, XLA does not try kernels out on a GPU, and the compilers log little. What the environment says already
    stays.
    """
    settings = {
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TPU_MIN_LOG_LEVEL": "3",
        "TPU_STDERR_LOG_LEVEL": "3",
    }
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    tuning, xla = "--xla_gpu_autotune_level=", os.environ.get("XLA_FLAGS", "")
    if tuning not in xla:
        os.environ["XLA_FLAGS"] = f"{xla} {tuning}0".strip()


def hide_late_errors() -> None:
    """Hide errors of orbax's threads that are not waited for, after a checkpoint could not be written or read.

    The error itself is raised. Other reads and writes fail later, in threads of orbax and tensorstore, and are printed
    through `sys.excepthook`, `sys.unraisablehook` and `threading.excepthook`: this function replaces these hooks for
    the rest of the process. The command line calls it. Otherwise they are replaced only while a checkpoint is written
    or read.
    """
    from .checkpoints.unfinished import hide_late_errors as hide

    hide()


def keep_compiled(folder: str | os.PathLike[str] | None = None) -> None:
    """Keep on disk what took long to compile: it is not compiled again next time.

    The steps and tests of solvers on a CPU are found without being traced, by the net, the settings and all else that
    they are made of; a change of any of it, of a version or a source makes another. Nets with layers on the host, layer
    types of others, or types that are made for each layer, are left out. Beside these it is JAX's persistent
    compilation cache, for all that JAX compiles in this process, not only nets; `jax_compilation_cache_max_size` bounds
    either. `CAFFEJAX_CACHE=off` leaves all to JAX's own settings; where those name a folder, only JAX keeps programs.

    Code is loaded from that folder: what anybody else may write to is not used.

    Args:
        folder: where it lies; `$CAFFEJAX_CACHE` unless given, by default ~/.cache/caffejax.
    """
    import jax

    from .kernels.program_cache import Programs, processor

    chosen = os.environ.get("CAFFEJAX_CACHE", "")
    if chosen == "off" or jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "caffejax"
    # code for one processor may not run on another that shares the folder
    root = Path(folder or chosen or default).expanduser() / processor()
    jax.config.update("jax_compilation_cache_dir", str(root))
    Programs.folder = root / "programs"
    if jax.config.values["jax_persistent_cache_min_compile_time_secs"] == 1:  # JAX's default
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def keep_memory() -> bool:
    """Let glibc's malloc keep freed memory for the next request; return whether it does.

    By default large blocks go back to the system, which clears every page again when the next run of a compiled
    function asks for it: up to a third of the time of a training step on a CPU. This changes malloc for the whole
    process (`mallopt`: one arena, no mapped blocks, no trimming, 64 MiB more at each growth). The process then never
    shrinks, and may grow to nearly twice the memory. Call it before JAX starts its threads (at the first array or
    `jax.devices()`), otherwise XLA's memory is not kept; other C libraries have no such setting.
    `CAFFEJAX_BLOCKS=off` in the environment leaves malloc unchanged.
    """
    global _keeps_memory
    if os.environ.get("CAFFEJAX_BLOCKS") != "off" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        _keeps_memory = all(libc.mallopt(option, value) for option, value in _MALLOC_OPTIONS.items())
    return _keeps_memory


def keeps_memory() -> bool:
    """Return whether `keep_memory` has taken effect in this process."""
    return _keeps_memory


def trace_uncollected() -> None:
    """Let Python's garbage collector rest while a net is traced and compiled, in all threads.

    It finds nothing in what tracing makes, and took a quarter of ResNet-152's 2.4 s. It runs again after each call.
    To leave it on, do not call this.
    """
    from .kernels.compiling import Jitted

    Jitted.collecting = False


def sleep_between_calls() -> None:
    """Load oneDNN with OpenMP threads that soon sleep after its calls, where they would else spin on XLA's cores.

    They spin for some 300 microseconds, in which the next call mostly comes; to be woken would take 60, or far longer
    where others want the core. OpenMP reads `OMP_WAIT_POLICY` and `GOMP_SPINCOUNT` when it is loaded, which is now, and
    follows them in all of the process: they are set for that moment. Where one is set already, both are left alone.
    """
    from .kernels import onednn

    settings = {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "20000"}
    if not settings.keys().isdisjoint(os.environ):
        return
    os.environ |= settings
    try:
        onednn.missing()  # loads it
    finally:
        for name in settings:
            del os.environ[name]


def alias_package(alias: str, package: str) -> None:
    """Have `import alias`, and of all modules in it, give a package from now on: the same objects under both names.

    It is found before another package of that name, until the process ends. `caffejax.pycaffe.install()` makes
    `import caffe` work with it.

    Raises:
        CaffejaxError: if another package of that name was imported already.
    """
    install(alias, package)
