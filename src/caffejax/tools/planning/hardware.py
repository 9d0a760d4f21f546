"""Target accelerators: their data sheets, by name or from a file, and their devices in JAX.

"Device" means a JAX device. A TPU v4 chip has two cores, and each core is a device.
"""

from __future__ import annotations

import importlib.util
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import jax
from jax.experimental import topologies

from ...base.errors import CaffejaxError, Problem, did_you_mean, is_integer

_EXAMPLES = "tpu:v5e:2x2 or cuda:h100:4"
_MAX_AXIS_DEVICES = 4096  # maximum devices along an axis
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_NUMBER_FIELDS = ("memory", "bandwidth", "bfloat16", "tf32", "float32", "link", "network")

_OPTIONAL_FIELDS = ("network", "joined", "cores", "compiler")

Platform = Literal["tpu", "cuda"]


@dataclass(frozen=True)
class Chip:
    """The data sheet of one device.

    Attributes:
        platform: "tpu" or "cuda".
        name: the compiler's name for the chip, such as the TPU generation "v5e".
        memory: the size of the memory in bytes.
        bandwidth: the bandwidth of the memory, in bytes per second.
        bfloat16, tf32, float32: peak dense operations per second in matrix products of this precision.
        link: the bandwidth of the links to neighbours, in bytes per second and direction.
        network: the bandwidth to devices that links do not connect, in bytes per second and direction.
        joined: the number of devices that links connect, which is the size of a host or of a TPU pod.
        cores: the number of devices in a chip.
        compiler: for "cuda", additional fields of XLA's GpuDeviceInfoProto.
    """

    platform: Platform
    name: str
    memory: float
    bandwidth: float
    bfloat16: float
    tf32: float
    float32: float
    link: float
    network: float = 50e9
    joined: int = 8
    cores: int = 1
    compiler: Mapping[str, Any] = field(default_factory=dict)

    def peak(self, precision: str) -> float:
        """Return the peak operations per second in a precision: "bfloat16", "tf32" or "float32"."""
        return float(getattr(self, precision))


@dataclass(frozen=True)
class Target:
    """A number of equal devices for which programs are compiled.

    Attributes:
        chip: the data sheet of each device.
        shape: the layout of the chips, such as (2, 2) for 2x2 TPUs; for GPUs only their number, such as (4,).
    """

    chip: Chip
    shape: tuple[int, ...]

    @property
    def devices(self) -> int:
        """The number of devices, which is the number of chips times the cores per chip."""
        return math.prod(self.shape) * self.chip.cores

    def __str__(self) -> str:
        return f"{self.chip.platform}:{self.chip.name}:{'x'.join(map(str, self.shape))}"


def _make_tpu_chip(
    name: str, memory: float, bandwidth: float, bfloat16: float, link: float, cores: int = 1, **options: Any
) -> Chip:
    # a float32 product takes six bfloat16 products; with TF32's ten bits it takes three
    rates: Any = {"bfloat16": bfloat16 * 1e12, "tf32": bfloat16 * 1e12 / 3, "float32": bfloat16 * 1e12 / 6}
    return Chip("tpu", name, memory * 2**30, bandwidth * 1e9, link=link * 1e9, cores=cores, **rates, **options)


_GPU_FIELDS = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "shared_memory_per_block": 49152,
    "block_dim_limit_x": 2147483647,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
    "registers_per_core_limit": 65536,
    "registers_per_block_limit": 65536,
    "threads_per_core_limit": 2048,
}
_AMPERE_FIELDS = {"shared_memory_per_core": 167936, "shared_memory_per_block_optin": 166912, "fpus_per_core": 64}
_HOPPER_FIELDS = {"shared_memory_per_core": 233472, "shared_memory_per_block_optin": 232448, "fpus_per_core": 128}


def _make_gpu_chip(
    name: str,
    memory: float,
    bandwidth: float,
    bfloat16: float,
    tf32: float,
    float32: float,
    link: float,
    network: float = 50,
    **compiler_fields: Any,
) -> Chip:
    rates: Any = {"bfloat16": bfloat16 * 1e12, "tf32": tf32 * 1e12, "float32": float32 * 1e12}
    links: Any = {"link": link * 1e9, "network": network * 1e9}
    return Chip("cuda", name, memory, bandwidth * 1e9, **links, **rates, compiler={**_GPU_FIELDS, **compiler_fields})


CHIPS = {
    f"{chip.platform}:{chip.name}": chip
    for chip in (
        _make_tpu_chip("v4", memory=16, bandwidth=614, bfloat16=137.5, link=75, cores=2, network=1.5625e9, joined=8192),
        _make_tpu_chip("v5e", memory=16, bandwidth=819, bfloat16=197, link=100, network=3.125e9, joined=256),
        _make_tpu_chip("v5p", memory=95, bandwidth=2765, bfloat16=459, link=300, network=6.25e9, joined=8960),
        _make_tpu_chip("v6e", memory=32, bandwidth=1640, bfloat16=918, link=224, network=12.5e9, joined=256),
        _make_gpu_chip(
            "a100", memory=85_095_874_560, bandwidth=2039, bfloat16=312, tf32=156, float32=19.5, link=300, network=25,
            major=8, core_count=108, l2_cache_size=41_943_040, clock_rate_ghz=1.41, **_AMPERE_FIELDS,
        ),
        _make_gpu_chip(
            "h100", memory=84_942_979_072, bandwidth=3352.32, bfloat16=989, tf32=495, float32=67, link=450,
            major=9, core_count=132, l2_cache_size=52_428_800, clock_rate_ghz=1.98, **_HOPPER_FIELDS,
        ),
        _make_gpu_chip(
            "h200", memory=150_020_292_608, bandwidth=4800, bfloat16=989, tf32=495, float32=67, link=450,
            major=9, core_count=132, l2_cache_size=62_914_560, clock_rate_ghz=1.98, **_HOPPER_FIELDS,
        ),
        _make_gpu_chip(
            "b200", memory=191_514_017_792, bandwidth=7700, bfloat16=2250, tf32=1125, float32=75, link=900,
            major=10, core_count=148, l2_cache_size=132_120_576, clock_rate_ghz=1.965, **_HOPPER_FIELDS,
        ),
    )
}  # fmt: skip


def parse_target(text: str) -> Target:
    """Return the target with the given name: "tpu:v5e:2x2", "cuda:h100:4", or "chip.toml:4" with a chip file.

    A chip file contains the fields of `Chip`; the fields for the compiler are in a table `[compiler]`. With
    `like = "cuda:h100"`, only the fields that differ from this chip are needed.

    Raises:
        CaffejaxError: if the target is unknown or invalid; the message lists the valid values.
    """
    chip_name, _, shape = text.rpartition(":")
    counts = shape.split("x")
    if not chip_name or not all(
        n.isascii() and n.isdecimal() and len(n) < 10 and 0 < int(n) <= _MAX_AXIS_DEVICES for n in counts
    ):
        raise CaffejaxError(f"'{text}' is not a target; examples of targets are {_EXAMPLES}")
    chip = CHIPS.get(chip_name.lower()) or (_read_chip_file(Path(chip_name)) if chip_name.endswith(".toml") else None)
    if chip is None:
        names = ", ".join(CHIPS)
        raise CaffejaxError(
            f"no chip is called '{chip_name}'{did_you_mean(chip_name, CHIPS)}; choose one of {names}, or a .toml file"
        )
    if chip.platform == "cuda" and len(counts) > 1:
        raise CaffejaxError(
            f"'{text}': GPUs have no topology; set only their number: {chip_name}:{math.prod(map(int, counts))}"
        )
    return Target(chip, tuple(map(int, counts)))


def _read_chip_file(path: Path) -> Chip:
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CaffejaxError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    problems = list(_find_chip_problems(table))
    if problems:
        raise CaffejaxError([Problem(p, file=str(path)) for p in problems])
    base_chip = table.pop("like", None)
    if base_chip is None:
        return Chip(**table)
    compiler_fields = {**CHIPS[base_chip].compiler, **table.pop("compiler", {})}
    return replace(CHIPS[base_chip], **table, compiler=compiler_fields)


def _find_chip_problems(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each invalid or missing field of a chip file."""
    names = [field.name for field in fields(Chip)]
    like = table.get("like")
    if like is not None and (not isinstance(like, str) or like not in CHIPS):
        yield f"like must be one of {', '.join(CHIPS)}, not {like!r}"
    for name, value in table.items():
        if name == "like":
            continue
        if name not in names:
            yield f"'{name}' is not a field of a chip{did_you_mean(name, names)}"
        elif name == "platform" and value not in ("tpu", "cuda"):
            yield f"platform must be tpu or cuda, not {value!r}"
        elif name == "name" and not (isinstance(value, str) and _NAME.fullmatch(value)):
            yield f"name must be a non-empty string without spaces, not {value!r}"
        elif name == "compiler" and not _are_compiler_fields(value):
            yield f"compiler must be a table of names and numbers, not {value!r}"
        elif name == "cores" and (isinstance(value, bool) or value not in range(1, 9)):
            yield f"cores must be an integer from 1 to 8, not {value!r}"
        elif name == "joined" and (not is_integer(value) or value < 1):
            yield f"joined must be a positive integer, the number of linked devices, not {value!r}"
        elif name in _NUMBER_FIELDS and (
            isinstance(value, bool) or not isinstance(value, int | float) or not value > 0
        ):
            yield f"{name} must be a positive number, not {value!r}"
    if like is None:
        missing = [name for name in names if name not in table and name not in _OPTIONAL_FIELDS]
        if missing:
            yield f'lacks the fields {", ".join(missing)}; set them, or set like = "cuda:h100" and only what differs'


def _are_compiler_fields(value: Any) -> bool:
    is_number = lambda v: isinstance(v, int | float) and not isinstance(v, bool)  # noqa: E731
    return isinstance(value, dict) and all(_NAME.fullmatch(k) and is_number(v) for k, v in value.items())


_HINT = "in Python, call caffejax.compile_for_absent_devices() before JAX is first used"
_MIN_LAYOUTS = {
    "v4": (2, 2, 1),
    "v5e": (2, 2),
    "v5p": (2, 2, 1),
    "v6e": (2, 2),
}  # the smallest layouts that libtpu supports


def get_devices(target: Target) -> Sequence[Any]:
    """Return the target's devices as JAX device descriptions, for ahead-of-time compilation.

    Raises:
        CaffejaxError: if the compiler is not installed (the message contains the command that installs it), or if the
            layout does not exist.
    """
    return _get_tpus(target) if target.chip.platform == "tpu" else _get_gpus(target)


def _get_tpus(target: Target) -> Sequence[Any]:
    if importlib.util.find_spec("libtpu") is None:
        raise CaffejaxError("compiling for TPUs needs libtpu: pip install libtpu")
    min_shape = _MIN_LAYOUTS.get(target.chip.name, (2, 2))
    shape = target.shape if math.prod(target.shape) >= math.prod(min_shape) else min_shape
    shape = (*shape, *(1,) * (len(min_shape) - len(shape)))
    layout = "x".join(map(str, shape))
    try:
        devices = topologies.get_topology_desc(platform="tpu", topology_name=f"{target.chip.name}:{layout}").devices
    except Exception as error:  # libtpu raises various errors for unknown names and layouts
        raise CaffejaxError(f"libtpu does not support {target}: {_format_reason(error)}") from error
    if len(devices) < target.devices:
        raise CaffejaxError(f"libtpu reports {len(devices)} devices for {target}, but {target.devices} are needed")
    return devices[: target.devices]


def _get_gpus(target: Target) -> Sequence[Any]:
    plugins = ("jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13")
    if importlib.util.find_spec("jax_plugins") is None or not any(map(importlib.util.find_spec, plugins)):
        raise CaffejaxError(
            "compiling for GPUs needs JAX's CUDA plugin, of the same version as jax: pip install jax-cuda12-pjrt=="
            f"{jax.__version__} jax-cuda12-plugin=={jax.__version__} nvidia-cuda-nvcc-cu12"
        )
    target_config, layout = _format_gpu_config(target.chip), f"1x1x{target.devices}"
    try:
        topology = topologies.get_topology_desc(
            topology_name="", platform="cuda", target_config=target_config, topology=layout
        )
    except Exception as error:  # the compiler raises various errors for invalid targets
        raise CaffejaxError(f"the CUDA compiler does not support {target}: {_format_reason(error)}") from error
    return topology.devices


def _format_gpu_config(chip: Chip) -> str:
    """Return a description of the GPU for XLA's compiler: a GpuTargetConfigProto in protobuf's text format."""
    compiler_fields = dict(chip.compiler)
    capability = " ".join(
        f"{name}: {compiler_fields.pop(name)}" for name in ("major", "minor") if name in compiler_fields
    )
    compiler_fields |= {"memory_bandwidth": int(chip.bandwidth), "device_memory_size": int(chip.memory)}
    info = " ".join(f"{name}: {value}" for name, value in compiler_fields.items())
    return (
        f"gpu_device_info {{ {info} cuda_compute_capability {{ {capability} }} }} "
        'platform_name: "CUDA" dnn_version_info { major: 9 minor: 10 patch: 0 } '
        f'device_description_str: "{chip.name}"'
    )


def _format_reason(error: Exception) -> str:
    line = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    # JAX raises this error if it has not loaded the compiler, because no platform or different platforms were selected
    return f"{line}; {_HINT}" if "not implemented" in line or "not found" in line.lower() else line
