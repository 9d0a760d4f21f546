"""Cache of compiled programs on disk, which finds a program without tracing its function.

A new process made its first training step in 0.78 (LeNet) and 0.46 (GoogLeNet) of the time that it took with JAX's
compilation cache alone, with both filled: there the key is the lowered program, so a function must be traced and
lowered before its program is found. Here the key is a hash of everything that determines the program: the function, as
its caller describes it; the compiler options; the types of the arguments; JAX's settings; the sources of caffejax; the
versions of the packages; and the processor. The key is the name of the file.

Loading a program runs code. Therefore the cache reads only files and folders to which no other user can write, and each
file must match its checksum.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import logging
import math
import os
import pickle
import platform
import secrets
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import serialize_executable

from ...base.atomic_write import replace_file
from ...base.errors import CaffejaxError
from ...core.ops.compilation import describe_settings
from . import onednn

log = logging.getLogger("caffejax.compiling")

Program = Callable[..., Any]

_MAGIC = b"caffejax program 1\n"
_IMPORT_TIME = time.time_ns()
_PACKAGE = Path(__file__).parents[2]
_PACKAGES = ("jax", "jaxlib", "numpy", "optax", "flax", onednn.PACKAGE)
_VARIABLE_PREFIXES = ("XLA_", "JAX_", "TF_", "ONEDNN_", "DNNL_", "NPROC", "PJRT_")  # prefixes of environment variables


class ProgramCacheConfig:
    """The setting of the cache, for the whole process.

    Attributes:
        folder: the folder of compiled programs, which is created when it is needed, or None to store no programs.
    """

    folder: Path | None = None


class CachedPrograms:
    """The programs of one function in the cache: one for each combination of argument types.

    Args:
        function: bytes that identify the function.
        options: the compiler options.
    """

    def __init__(self, function: bytes, options: Mapping[str, Any]) -> None:
        self._key_parts = function, repr(sorted(options.items()))

    def prefetch(self) -> None:
        """Load the newest stored program in a thread, for the next call of `find_or_compile`; return at once."""
        if (prefix := self._prefix()) is not None:
            _PREFETCHES[prefix] = _Prefetch(prefix)

    def describe(self, args: tuple[Any, ...]) -> str | None:
        """Return what a program depends on beside the function, as text, or None if it cannot be stored."""
        types = None if ProgramCacheConfig.folder is None else describe_types(args)
        return None if types is None else f"{types} {describe_settings()}"

    def find_or_compile(
        self, args: tuple[Any, ...], lower: Callable[[], tuple[jax.stages.Lowered, Mapping[str, Any]]]
    ) -> Program | None:
        """Return the stored program for arguments of these types. If it is missing, compile and store it.

        Args:
            args: the arguments.
            lower: lowers the function for the arguments; returns the result and the compiler options.

        Returns:
            The program, or None if it cannot be stored. Failures to store it are logged, not raised.
        """
        prefix, types = self._prefix(), describe_types(args)
        path = None if prefix is None or types is None else _program_path(prefix, types)
        if prefix is not None and path is not None:
            prefetch = _PREFETCHES.pop(prefix, None)
            program = (prefetch and prefetch.result(path)) or _read_program(path)
            if program is not None:
                return program
        compiled = _compile_uncached(*lower())
        if path is not None and compiled is not None:
            _write_program(path, compiled)
        return compiled

    def _prefix(self) -> Path | None:
        """Return the prefix of the paths of the function's programs, or None if programs cannot be stored."""
        if ProgramCacheConfig.folder is None or (environment := _describe_environment()) is None:
            return None
        return ProgramCacheConfig.folder / _hash(*self._key_parts, environment, describe_settings())


class _Prefetch:
    """A thread that loads the newest program whose path starts with `prefix`."""

    def __init__(self, prefix: Path) -> None:
        self._path_and_program: tuple[Path, Program] | None = None
        self._thread = threading.Thread(target=self._load, args=(prefix,), daemon=True)
        self._thread.start()

    def result(self, path: Path) -> Program | None:
        """Wait for the thread, and return the program if it was loaded from `path`, else None."""
        self._thread.join()
        return (
            self._path_and_program[1]
            if self._path_and_program is not None and self._path_and_program[0] == path
            else None
        )

    def _load(self, prefix: Path) -> None:
        with contextlib.suppress(OSError):
            paths = sorted(prefix.parent.glob(f"{prefix.name}-*"), key=lambda p: p.stat().st_mtime_ns)
            if paths and (program := _read_program(paths[-1])) is not None:
                self._path_and_program = paths[-1], program


_PREFETCHES: dict[Path, _Prefetch] = {}


_COMPILE_LOCK = threading.Lock()


def _compile_uncached(lowered: jax.stages.Lowered, options: Mapping[str, Any]) -> jax.stages.Compiled | None:
    """Compile a program without JAX's compilation cache, because XLA cannot serialize a program from that cache.

    A compiler option with a random value makes the key in JAX's cache unique, so that the program is never found there.

    Args:
        lowered: the program.
        options: the compiler options.

    Returns:
        The compiled program, or None if compilation fails.
    """
    unique_option: dict[str, Any] = {"xla_gpu_redzone_padding_bytes": secrets.randbits(62)}  # has no effect on a CPU
    setting = "jax_persistent_cache_min_compile_time_secs"
    with _COMPILE_LOCK:
        previous_value = jax.config.values[setting]
        jax.config.update(setting, math.inf)  # JAX's cache must not store the program either
        try:
            return lowered.compile({**options, **unique_option})
        except Exception as error:  # the type depends on the jaxlib; other errors recur without the cache
            log.debug("Cannot compile a program for the cache: %s", error)
            return None
        finally:
            jax.config.update(setting, previous_value)


def describe_types(args: tuple[Any, ...]) -> str | None:
    """Return the types and tree structure of arguments, as text.

    The result is None if an argument is traced, if an argument is not on the first CPU, if JAX's default device is not
    the first CPU, or if there are several processes.
    """
    leaves, tree = jax.tree.flatten(args)
    cpu, default_device = _first_cpu(), jax.config.values["jax_default_device"]
    if not _are_concrete(leaves) or default_device not in (None, cpu) or jax.process_count() > 1:
        return None
    if any(x.devices() != {cpu} for x in leaves if isinstance(x, jax.Array)):
        return None
    avals = [jax.typeof(x) for x in leaves]
    types = [
        (str(aval), getattr(aval, "weak_type", False), getattr(x, "committed", False))
        for aval, x in zip(avals, leaves, strict=True)
    ]
    return repr((types, str(tree)))


def _first_cpu() -> jax.Device:
    return jax.local_devices(backend="cpu")[0]


def _are_concrete(leaves: list[Any]) -> bool:
    types = jax.Array | np.ndarray | np.generic | int | float
    return all(isinstance(x, types) and not isinstance(x, jax.core.Tracer) for x in leaves)


@functools.cache
def _describe_environment() -> str | None:
    """Return a description of caffejax's sources, the package versions and the processor, as text.

    The result is None if a source file is newer than the import of this module, because the file may differ from the
    code that runs.
    """
    sources = hashlib.sha256()
    for path in sorted(p for p in _PACKAGE.rglob("*") if p.suffix in (".py", ".so")):
        if path.stat().st_mtime_ns > _IMPORT_TIME:
            return None
        sources.update(f"{path.relative_to(_PACKAGE)} {path.stat().st_size}\n".encode())
        sources.update(path.read_bytes())
    versions = [(name, _find_version(name)) for name in _PACKAGES]
    devices = [(str(d), d.device_kind) for d in jax.devices("cpu")]
    cores = os.cpu_count(), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    variables = sorted((k, v) for k, v in os.environ.items() if k.startswith(_VARIABLE_PREFIXES))
    return repr(
        (
            sources.hexdigest(),
            sys.version,
            versions,
            platform.platform(),
            describe_processor(),
            devices,
            cores,
            variables,
        )
    )


def _find_version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


@functools.cache
def describe_processor() -> str:
    """Return the machine type, and a hash of the processor's model and instruction sets, as in "x86_64-0f3a9c21"."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [platform.processor()]
    features = sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    return f"{platform.machine()}-{hashlib.sha256(chr(10).join(features).encode()).hexdigest()[:8]}"


def _hash(*parts: bytes | str) -> str:
    digest = hashlib.sha256(f"{onednn.is_available()}\n".encode())  # evaluated in each call, because it loads oneDNN
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode()
        digest.update(f"{len(data)}\n".encode() + data)
    return digest.hexdigest()[:32]


def _program_path(prefix: Path, types: str) -> Path:
    return prefix.with_name(f"{prefix.name}-{_hash(types)}")


def _write_program(path: Path, compiled: jax.stages.Compiled) -> None:
    try:
        if _has_callbacks(compiled):
            return
        serialized_program, _, out_tree = serialize_executable.serialize(compiled)
        in_tree = jax.tree.structure(compiled.args_info)
        body = pickle.dumps((path.name, serialized_program, in_tree, out_tree))
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _is_trusted(path.parent):
            return
        with replace_file(path) as file:
            file.write(_MAGIC + hashlib.sha256(body).digest() + body)
        os.chmod(path, 0o600)
        _delete_oldest(path.parent)
    except (CaffejaxError, OSError) as error:  # such as a full disk: the program can still run
        log.info("Cannot store a compiled program: %s", error)
    except Exception as error:  # the type depends on the version of JAX
        log.debug("Cannot serialize a compiled program: %s", error)


def _has_callbacks(compiled: Any) -> bool:
    """Return whether a program calls back into Python functions of this process, and so cannot be stored."""
    unloaded_executable = getattr(getattr(compiled, "_executable", None), "_unloaded_executable", None)
    attributes = "host_callbacks", "keepalive", "ordered_effects", "unordered_effects"
    return any(getattr(unloaded_executable, attribute, True) for attribute in attributes)


def _read_program(path: Path) -> Program | None:
    """Return the program in a file.

    The result is None if the file is missing, damaged, not trusted, or was written for a different path.
    """
    try:
        if not (_is_trusted(path.parent) and _is_trusted(path)):
            return None
        data = path.read_bytes()
        body = data[len(_MAGIC) + 32 :]
        if not data.startswith(_MAGIC) or hashlib.sha256(body).digest() != data[len(_MAGIC) : len(_MAGIC) + 32]:
            return None
        name, serialized_program, in_tree, out_tree = pickle.loads(body)
        if name != path.name:
            return None
        return serialize_executable.deserialize_and_load(
            serialized_program, in_tree, out_tree, execution_devices=[_first_cpu()]
        )
    except FileNotFoundError:
        return None
    except Exception as error:  # damaged files raise errors of many types
        log.debug("%s cannot be read as a compiled program: %s", path, error)
        return None


def _is_trusted(path: Path) -> bool:
    """Return whether only this user and root can write to a file or folder. A symbolic link is never trusted."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return False
    return not hasattr(os, "geteuid") or (status.st_uid in (os.geteuid(), 0) and not status.st_mode & 0o022)


def _delete_oldest(folder: Path) -> None:
    """Delete the oldest programs until the folder fits JAX's setting jax_compilation_cache_max_size."""
    max_size = jax.config.values["jax_compilation_cache_max_size"]
    if max_size < 0:
        return
    files = sorted(((p.stat().st_mtime_ns, p.stat().st_size, p) for p in folder.iterdir()), reverse=True)
    total = 0
    for _, size, path in files:
        total += size
        if total > max_size:
            path.unlink(missing_ok=True)
