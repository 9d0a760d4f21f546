"""Flags that several commands take, spelled as Caffe's: `--name=value`, `-name value`."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ..errors import CaffejaxError
from ..options import Reading, Run, choices
from ..sizes import bytes_in

if TYPE_CHECKING:
    import jax


def add(parser: argparse.ArgumentParser, name: str, help: str, **more: Any) -> None:
    """Adds a flag with one dash and with two; `debug_nans` may be spelled `debug-nans` as well."""
    spellings = dict.fromkeys((name, name.replace("_", "-")))
    more = {"dest": name, **more}
    parser.add_argument(*(f"{dashes}{s}" for s in spellings for dashes in ("--", "-")), help=help, **more)


def add_switch(parser: argparse.ArgumentParser, name: str, help: str, dest: str | None = None) -> None:
    """Adds a flag that is off unless given, in gflags' spellings: `--gray`, `-gray`, `--gray=false`, `--nogray`."""
    dest = dest or name
    add(parser, name, help, dest=dest, action="store_true")
    for value, spellings in (True, ("=true", "=1")), (False, ("=false", "=0")):
        for spelling in spellings:
            add(parser, name + spelling, argparse.SUPPRESS, dest=dest, action="store_const", const=value)
    add(parser, f"no{name}", argparse.SUPPRESS, dest=dest, action="store_const", const=False)


def count(text: str) -> int:
    """A number from 0, as a flag's type."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 0 on")
    return int(text)


def positive(text: str) -> int:
    """A number from 1, as a flag's type."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return int(text)


def add_device_flags(parser: argparse.ArgumentParser) -> None:
    """`--gpu` and `--device`."""
    add(parser, "gpu", "run on the GPU of this number", metavar="N")
    add(parser, "device", "run on this kind of device, and number: cpu, gpu:1, tpu", metavar="KIND[:N]")


def add_kernels_flag(parser: argparse.ArgumentParser) -> None:
    """`--kernels`."""
    more: Any = {"choices": choices("kernels"), "default": "fast"}
    add(parser, "kernels", "fast formulations of the operations, or the plain lowering to compare with", **more)


def add_precision_flag(parser: argparse.ArgumentParser) -> None:
    """`--precision`."""
    more: Any = {"choices": choices("precision"), "default": "float32"}
    add(parser, "precision", "floats of products and activations; parameters and sums are float32 always", **more)


def add_remat_flags(parser: argparse.ArgumentParser) -> None:
    """`--remat` and `--memory_limit`."""
    more: Any = {"choices": choices("remat"), "default": "none"}
    add(parser, "remat", "auto: where memory would not suffice, compute layers again in the backward pass", **more)
    add(
        parser,
        "memory_limit",
        "with --remat=auto, what training may take; what is free unless given",
        type=size,
        metavar="SIZE",
    )


def size(text: str) -> int:
    """A number of bytes, as a flag's type: "8GiB"."""
    try:
        return bytes_in(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_state_flags(parser: argparse.ArgumentParser) -> None:
    """`--level` and `--stage`."""
    add(parser, "level", "the net's level", type=int, default=0)
    add(parser, "stage", "the net's stages, separated by commas", default="", metavar="A,B")


def add_data_flags(parser: argparse.ArgumentParser) -> None:
    """`--workers` and `--skip_bad_images`."""
    add(parser, "workers", "read each data layer in this many processes; 0 for threads", type=count, default=0)
    add_switch(
        parser,
        "skip_bad_images",
        "take the next image for one that cannot be decoded, with a warning",
        dest="skip_bad",
    )


def run_of(options: argparse.Namespace) -> Run:
    """How a net computes, by those of the flags that a command has."""
    return Run(**_fields_of(Run, options))


def reading_of(options: argparse.Namespace) -> Reading:
    """How a net's data is read, likewise."""
    return Reading(**_fields_of(Reading, options))


def _fields_of(kind: type[Run | Reading], options: argparse.Namespace) -> dict[str, Any]:
    return {field.name: getattr(options, field.name) for field in fields(kind) if hasattr(options, field.name)}


def stages(options: argparse.Namespace) -> list[str]:
    """The stages that `--stage` names."""
    return [s for s in options.stage.split(",") if s]


def pick_device(options: argparse.Namespace, prefer_gpu: bool, device_id: int = 0) -> jax.Device:
    """The device that the flags ask for, else a GPU (or TPU) if preferred and there, else the CPU.

    Args:
        options: the command's flags.
        prefer_gpu: whether the solver's solver_mode is GPU.
        device_id: which GPU the solver names.

    Raises:
        CaffejaxError: if the flags ask for a device that is not there.
    """
    import jax

    from ..glog import log

    if options.gpu is not None and options.device is not None:
        raise CaffejaxError("give --gpu or --device, not both")
    if options.gpu is not None or options.device is not None:
        kind, _, number = (options.device or f"gpu:{options.gpu}").partition(":")
        return device_of(kind, number or "0")
    if prefer_gpu:
        if jax.default_backend() != "cpu":
            return device_of(jax.default_backend(), str(device_id))
        log.warning("solver_mode is GPU, but JAX sees no GPU here: running on the CPU")
    return jax.devices("cpu")[0]


def device_of(kind: str, number: str) -> jax.Device:
    """The device of that kind ("gpu") and number.

    Raises:
        CaffejaxError: if there is none.
    """
    import jax

    if not number.isdigit():
        raise CaffejaxError(f"'{number}' is not a device number; several devices at once are not supported yet")
    try:
        devices = jax.devices(kind)
    except RuntimeError as error:
        raise CaffejaxError(
            f"JAX sees no {kind} device here; --device cpu runs on the CPU, and a GPU needs jax's CUDA packages"
        ) from error
    if int(number) >= len(devices):
        raise CaffejaxError(f"there is no {kind} {number}; {kind} devices here: 0 to {len(devices) - 1}")
    return devices[int(number)]
