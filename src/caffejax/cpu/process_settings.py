"""Settings of the entire process. Each setting is a function, which must be called for the setting to have an effect.

Importing caffejax, building a net and calling a net do not change the process. These functions do change it, for other
libraries as well, so the program that owns the process calls them. The command line calls `tune_process`, which
combines the settings that make nets faster. All functions may be called several times and at any time; a call that
comes too late has no effect.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from ..base.import_alias import install_alias

__all__ = [
    "alias_package",
    "compile_for_absent_devices",
    "enable_compilation_cache",
    "keep_freed_memory",
    "limit_openmp_spinning",
    "pause_gc_while_tracing",
    "tune_process",
]

# of glibc's malloc.h: M_ARENA_MAX, M_MMAP_MAX, M_TRIM_THRESHOLD (never), M_TOP_PAD (bytes)
_MALLOC_OPTIONS = {-8: 1, -4: 0, -1: -1, -2: 64 << 20}
_keeps_freed_memory = False


def tune_process() -> None:
    """Make nets faster by calling four functions of this module, whose docstrings describe their effects.

    They are `keep_freed_memory`, `limit_openmp_spinning`, `enable_compilation_cache` and `pause_gc_while_tracing`. Call
    `tune_process` before the first net or solver is constructed; the command line calls it. Without the compilation
    cache, a solver compiles its step in every new process, such as a restarted notebook.
    """
    keep_freed_memory()  # first, because it must precede JAX's threads
    limit_openmp_spinning()
    enable_compilation_cache()
    pause_gc_while_tracing()


def compile_for_absent_devices() -> None:
    """Let XLA compile for TPUs and GPUs that this machine does not have, as the command `plan` does.

    Call it before JAX is first used. JAX then uses CPUs only and does not look for TPUs, several processes may load
    libtpu at once, XLA does not autotune kernels on a GPU, and the compilers log little. The function sets environment
    variables, and keeps the values of variables that are already set.
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
    autotune_flag, xla_flags = "--xla_gpu_autotune_level=", os.environ.get("XLA_FLAGS", "")
    if autotune_flag not in xla_flags:
        os.environ["XLA_FLAGS"] = f"{xla_flags} {autotune_flag}0".strip()


def enable_compilation_cache(folder: str | os.PathLike[str] | None = None) -> None:
    """Cache compiled programs on disk, so that later processes do not compile them again.

    On a CPU, the steps and tests of solvers are loaded without being traced. They are stored under a hash of the net,
    the settings, the sources and the versions. If any of them changes, a new program is compiled. Nets with layers on
    the host, with custom layer types, or with types that are generated for each layer are not stored in this way. In
    addition, the function turns on JAX's persistent compilation cache, for all functions that JAX compiles in this
    process. `jax_compilation_cache_max_size` limits the size of each cache. `CAFFEJAX_CACHE=off` turns both caches off
    and leaves JAX's settings as they are. If JAX's settings already name a cache folder, only JAX's cache is used.
    Kernels that XLA has chosen by their times on a GPU are kept in JAX's cache, too, one by one, unless JAX's setting
    `jax_persistent_cache_enable_xla_caches` says otherwise.

    Code is loaded from the folder, so solvers' programs are not loaded from folders or files that other users may write
    to.

    Args:
        folder: the folder of both caches. The default is `$CAFFEJAX_CACHE` if it is set, otherwise ~/.cache/caffejax.
    """
    import jax

    from .kernels.executable_cache import ProgramCacheConfig, describe_processor

    environment_folder = os.environ.get("CAFFEJAX_CACHE", "")
    if environment_folder == "off" or jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    default_folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "caffejax"
    # machines with different processors may share the folder, and code for one may not run on another
    root = Path(folder or environment_folder or default_folder).expanduser() / describe_processor()
    jax.config.update("jax_compilation_cache_dir", str(root))
    ProgramCacheConfig.folder = root / "programs"
    if jax.config.values["jax_persistent_cache_min_compile_time_secs"] == 1:  # JAX's default
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def keep_freed_memory() -> bool:
    """Make glibc's malloc keep freed memory for later requests, and return whether this succeeded.

    By default, malloc returns large blocks to the system, which clears every page again at the next run of a compiled
    function. This takes up to a third of a training step on a CPU. The function calls `mallopt` for the whole process:
    one arena, no mapped blocks, no trimming, and 64 MiB more at each growth. The process then never shrinks,
    and its memory may nearly double. Call it before JAX starts its threads (at the first array or `jax.devices()`);
    after that, XLA's memory is not kept. Other C libraries have no such setting. `CAFFEJAX_KEEP_FREED_MEMORY=off` in
    the environment leaves malloc unchanged.
    """
    global _keeps_freed_memory
    if os.environ.get("CAFFEJAX_KEEP_FREED_MEMORY") != "off" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        _keeps_freed_memory = all(libc.mallopt(option, value) for option, value in _MALLOC_OPTIONS.items())
    return _keeps_freed_memory


def is_freed_memory_kept() -> bool:
    """Return whether `keep_freed_memory` has taken effect in this process."""
    return _keeps_freed_memory


def pause_gc_while_tracing() -> None:
    """Make every later call of a net's compiled functions pause Python's garbage collector, in all threads.

    The first call of a function traces and compiles it. Tracing creates no reference cycles, but the collector took a
    quarter of the 2.4 s of tracing ResNet-152. The collector resumes when the call ends.
    """
    from ..core.ops.compilation import Jitted

    Jitted.allows_gc = False


def limit_openmp_spinning() -> None:
    """Load oneDNN with OpenMP threads that sleep soon after each call, instead of spinning on the cores that XLA needs.

    The threads spin for about 30 microseconds, within which the next layer usually starts. Waking a sleeping thread
    takes 60 microseconds. Longer spinning gains nothing on idle cores. If another program uses one of the cores, two
    threads share a core, and in each layer one of them spins while the other has work. OpenMP reads `OMP_WAIT_POLICY`
    and `GOMP_SPINCOUNT` when it is loaded and applies them to the whole process, so this function sets both, loads
    oneDNN, and removes both variables again. If either variable is already set, the function does nothing.
    """
    from .kernels import onednn

    settings = {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "2000"}
    if not settings.keys().isdisjoint(os.environ):
        return
    os.environ |= settings
    try:
        onednn.unavailable_reason()  # loads it
    finally:
        for name in settings:
            del os.environ[name]


def alias_package(alias: str, package: str) -> None:
    """Make `import alias` return `package`, and `import alias.x` return `package.x`, until the process ends.

    Modules are the same objects under both names. The alias takes precedence over an installed package of the same
    name. `caffejax.pycaffe.install()` uses this function for `import caffe`.

    Raises:
        CaffejaxError: if a different package named `alias` has already been imported.
    """
    install_alias(alias, package)
