"""Compilation like `jax.jit`, with compiler options, a disk cache for CPUs, and fast transfers to CPUs."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend import backend
from jax.extend.core import get_opaque_trace_state

from ...base.config import Kernels
from ...base.fork_guard import raise_after_fork
from .implementations import find_form
from .jax_private import find_private
from .program_cache import BYTES_PER_EQUATION, Entry, ProgramCache, count_equations

# for each platform, the options that differ from XLA's defaults
_OPTIONS: dict[str, dict[str, Any]] = {
    # by default, XLA calls its library YNN for convolutions, too; code that XLA generates is faster for them
    "cpu": {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT"},
    # by default, XLA compiles and times many Triton kernels for each matrix product; the steps of nets are as fast with
    # cuBLAS, and are compiled in a quarter to two thirds of the time (docs/development/accelerators.md)
    "gpu": {"xla_gpu_enable_triton_gemm": False},
}

_BYTES_PER_ARGUMENT = 64 * 2**10  # of a program from disk, for each array that it takes

# prefixes of the names of JAX's settings that do not change compiled programs
_IRRELEVANT_PREFIXES = (
    "jax_compilation_cache",
    "jax_persistent_cache",
    "jax_enable_compilation_cache",
    "jax_log",
    "jax_dump",
)


def describe_settings() -> str:
    """Return the JAX settings of the current thread that a compiled program depends on, as text."""
    values: Mapping[str, Any] = jax.config.values
    return repr(sorted((k, repr(v)) for k, v in values.items() if not k.startswith(_IRRELEVANT_PREFIXES)))


# JAX's settings in this thread that a trace depends on; read before each call, by the function that JAX uses
_read_settings: Callable[[], Any] = find_private("trace settings") or describe_settings
_batched_device_put = find_private("transfer to CPUs")

with jax.ensure_compile_time_eval():  # this module may be imported while a function is traced
    _EAGER_TRACE_STATE = get_opaque_trace_state()


@raise_after_fork("__call__", "lower", "trace")
class Jitted:
    """A function that is compiled as by `jax.jit`, with compiler options for the fast kernels on CPUs and GPUs.

    JAX accepts compiler options only in the outermost jit, so inside another jit, grad or vmap the function is compiled
    without them. The program for each combination of shapes belongs to a `ProgramCache`, which may drop it.

    Args:
        function: the function to compile.
        kernels: "fast" to use the compiler options, "reference" to use none.
        cache_key: bytes that identify the function and all of its settings, to store its programs for CPUs on disk (see
            `kernels.executable_cache`), or None to store nothing. Stored programs take only positional arguments.
        programs: the cache in memory, or None for one that only this function uses.
        program_key: the part of the keys in `programs` that distinguishes this function from others.
        options: options of `jax.jit`.

    Attributes:
        allows_gc: a setting of the class: whether Python's garbage collector may run during calls.
    """

    allows_gc = True

    def __init__(
        self,
        function: Callable[..., Any],
        kernels: Kernels,
        *,
        cache_key: bytes | None = None,
        programs: ProgramCache | None = None,
        program_key: Hashable = None,
        **options: Any,
    ) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function, self._options = function, options
        self._plain_jit = jax.jit(function, **options)
        self._uses_compiler_options = kernels == "fast"
        self._cache_key = cache_key
        self._programs = ProgramCache() if programs is None else programs
        self._program_key = program_key
        self._last_program: tuple[Any, weakref.ref[Entry]] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, compiled for arguments of these types, and return its result."""
        if Jitted.allows_gc:
            return self._run(args, kwargs)
        with _pause_collector():
            return self._run(args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if self._cache_key is not None and not kwargs and is_eager():
            if (
                self._last_program is not None
                and self._last_program[0] == _read_settings()
                and (last_entry := self._last_program[1]()) is not None
            ):
                with contextlib.suppress(
                    TypeError, ValueError
                ):  # raised before the program runs, if the arguments have other types
                    return last_entry.use()(*args)
            if (program := self._find_or_compile(args)) is not None:
                return program(*args)
        return self._select(args, kwargs)(*args, **kwargs)

    def prefetch(self) -> None:
        """Load the newest stored program in a separate thread, if the function has a `cache_key`; return at once."""
        if self._stored is not None:
            self._stored.prefetch()

    @functools.cached_property
    def _stored(self) -> Any | None:
        """The programs of this function on disk, or None."""
        open_programs = find_form("stored_programs")
        if self._cache_key is None or open_programs is None:
            return None
        # which of the options are accepted depends on the jaxlib, whose version is a part of the key
        options = _OPTIONS["cpu"] if self._uses_compiler_options and has_only_cpus() else {}
        return open_programs(self._cache_key, self._options | {"compiler": options})

    def _find_or_compile(self, args: tuple[Any, ...]) -> Any:
        """Return the compiled program for arguments of these types. It is read from disk, or compiled and stored.

        The result is None if programs cannot be stored.
        """
        if self._stored is None or not has_only_cpus() or (description := self._stored.describe(args)) is None:
            return None
        key = self._program_key, "stored", description
        entry = self._programs.find(key)
        if entry is None:
            program = self._stored.find_or_compile(args, lambda: self._lower_for_cpu(args))
            if program is None:
                return None
            # a program from disk has no equations to count, but the larger a net, the more arrays it takes
            entry = self._programs.add(key, program, len(jax.tree.leaves(args)) * _BYTES_PER_ARGUMENT)
        self._last_program = _read_settings(), weakref.ref(entry)
        return entry.program

    def _lower_for_cpu(self, args: tuple[Any, ...]) -> tuple[jax.stages.Lowered, dict[str, Any]]:
        """Return the lowered function, and the compiler options, which are not asked for before they are needed."""
        return self._make_jit("cpu").lower(*args), compiler_options("cpu") if self._uses_compiler_options else {}

    def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
        """Lower the function for arguments of these types, like `jax.jit(...).lower`."""
        return self._select(args, kwargs).lower(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> jax.stages.Traced:
        """Trace the function for arguments of these types, like `jax.jit(...).trace`."""
        return self._select(args, kwargs).trace(*args, **kwargs)

    def _select(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the jitted function, with the compiler options of the call's platform unless the call is traced."""
        if not is_eager():
            return self._plain_jit
        platform = find_platform(args, kwargs) if self._uses_compiler_options else ""
        shapes = [getattr(leaf, "shape", None) for leaf in jax.tree.leaves((args, kwargs))]
        key = self._program_key, platform, *shapes
        entry = self._programs.find(key)
        if entry is None:
            program = self._make_jit(platform)
            num_equations = count_equations(program.trace(*args, **kwargs).jaxpr.jaxpr)
            entry = self._programs.add(key, program, num_equations * BYTES_PER_EQUATION)
        return entry.program

    def _make_jit(self, platform: str) -> Any:
        """Return the jitted function, as an object whose programs and traces JAX drops with it."""

        @functools.wraps(self._function)
        def run(*args: Any, **kwargs: Any) -> Any:
            return self._function(*args, **kwargs)

        vars(run)["__caffejax_program__"] = True
        options: dict[str, Any] = dict(self._options)
        if self._uses_compiler_options and (accepted := compiler_options(platform)):
            options["compiler_options"] = accepted
        return jax.jit(run, **options)


@contextlib.contextmanager
def _pause_collector() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def is_eager() -> bool:
    """Return whether JAX traces no function in this thread, so that operations run immediately."""
    return get_opaque_trace_state() == _EAGER_TRACE_STATE


def find_platform(*arguments: Any) -> str:
    """Return the platform on which a call with these arguments runs: "cpu", "gpu" or "tpu".

    The first committed array determines the device. Without committed arrays it is JAX's default device.
    """
    if has_only_cpus():
        return "cpu"
    device = _find_device(arguments) or jax.default_backend()
    platform = getattr(device, "platform", device)
    return "gpu" if platform in ("cuda", "rocm") else platform


def _find_device(arguments: Any) -> Any:
    """Return the device of the first committed array, else JAX's setting: a device, a platform or None."""
    for leaf in jax.tree.leaves(arguments):
        if isinstance(leaf, Array) and not isinstance(leaf, jax.core.Tracer) and leaf.committed:
            return next(iter(leaf.devices()))
    return jax.config.values["jax_default_device"]


def runs_on_cpu(*arguments: Any) -> bool:
    """Return whether a call with these arguments runs on a CPU, as `find_platform` determines."""
    return find_platform(*arguments) == "cpu"


def find_cpu(*arguments: Any) -> jax.Device | None:
    """Return the CPU device on which a call with these arguments runs, or None if it runs on a different platform."""
    if not runs_on_cpu(*arguments):
        return None
    device = _find_device(arguments)
    return device if isinstance(device, jax.Device) else jax.local_devices(backend="cpu")[0]


def as_jax(array: np.ndarray, device: jax.Device | None, *, committed: bool = False) -> Array:
    """Convert a NumPy array to a JAX array on a CPU, faster than `jax.device_put`.

    `jax.device_put` takes 30 microseconds, as long as a small net.

    Args:
        array: the array. JAX shares its memory, without a copy, if it is aligned to 64 bytes; see `aligned_empty`.
        device: the CPU, or None for the default device.
        committed: whether the array is committed to the device.
    """
    array = np.asarray(array, jax.dtypes.canonicalize_dtype(array.dtype).newbyteorder("="))
    if _batched_device_put is None or device is None:
        return jax.device_put(array, device if committed else None)
    sharding, aval = _make_sharding(device), _make_aval(array.shape, array.dtype)
    result: Array = _batched_device_put(aval, sharding, [array], [device], committed=committed)
    return result


_make_sharding = functools.cache(jax.sharding.SingleDeviceSharding)
_make_aval = functools.lru_cache(1024)(jax.core.ShapedArray)


@functools.cache
def has_only_cpus() -> bool:
    """Return whether all devices of JAX are CPUs."""
    return set(backend.backends()) == {"cpu"}


@functools.cache
def compiler_options(platform: str, *, is_absent: bool = False) -> dict[str, Any]:
    """Return the compiler options for a platform that this jaxlib accepts; their names may change between versions.

    Options that `XLA_FLAGS` sets are omitted, so its values apply. If the platform `is_absent`, others are not tried.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    return {
        name: value
        for name, value in _OPTIONS.get(platform, {}).items()
        if f"--{name}" not in flags and (is_absent or _is_accepted({name: value}, platform))
    }


def _is_accepted(option: dict[str, Any], platform: str) -> bool:
    try:
        with jax.default_device(jax.local_devices(backend=platform)[0]):
            jax.jit(lambda: 0, compiler_options=option).lower().compile()
    except Exception:  # the type depends on the jaxlib
        return False
    return True


def full(shape: tuple[int, ...], value: float, dtype: Any = jnp.float32, device: jax.Device | None = None) -> Array:
    """Return an array filled with one number. On a CPU no program is compiled for its shape.

    Args:
        shape: the array's shape.
        value: the number.
        dtype: the array's dtype.
        device: the device that the array is committed to, or None for an uncommitted array on the default device.
    """
    target = device or find_cpu()
    if is_eager() and target is not None and target.platform == "cpu":
        return as_jax(np.full(shape, value, dtype), target, committed=device is not None)
    return jnp.full(shape, value, dtype, device=device)


def zeros_like(array: Any) -> Array:
    """Return zeros with the shape, the dtype and, for an array on a single CPU, the device of `array`."""
    is_concrete = isinstance(array, Array) and not isinstance(array, jax.core.Tracer)
    if not (is_concrete and is_eager() and len(array.sharding.device_set) == 1 and runs_on_cpu(array)):
        return jnp.zeros_like(array)
    return as_jax(np.zeros(array.shape, array.dtype), next(iter(array.devices())), committed=array.committed)
