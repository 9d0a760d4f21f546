"""The two sets of options: how a net computes, and how its data is read. Given once, and handed on whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from numbers import Integral
from typing import Any, Literal, TypedDict, get_args, get_origin, get_type_hints

from .errors import CaffejaxError, did_you_mean

Kernels = Literal["fast", "reference"]
Precision = Literal["float32", "tf32", "bfloat16"]
Backward = Literal["autodiff", "rules"]
Remat = Literal["none", "auto"]
BatchOf = Literal["device", "global"]
Shard = Literal["none", "optimizer", "params"]
ReduceDtype = Literal["auto", "float32"]
OnSnapshotError = Literal["stop", "continue"]
MAX_IMAGE_PIXELS = 2**29 // 3  # half a gigabyte of bytes in three colours; what Pillow refuses, too
MAX_HDF5_BYTES = 2**31
LIMITS = "max_image_pixels", "max_hdf5_bytes", "no_python_layers"  # the fields of `Reading` about what is not trusted
MESH_AXES = ("data", "model")  # rows of devices, each of which takes a batch, and the devices of a row


@dataclass(frozen=True)
class Run:
    """How a net computes.

    Attributes:
        kernels: "fast" for the formulations that suit the platform best, "reference" for the plain lowering of every
            layer.
        precision: "float32" on every platform; "tf32", with which products and convolutions round their factors to
            10 bits where the platform has it, which a CPU has not; or "bfloat16": the products and what lies between
            them in bfloat16; parameters, statistics, sums, losses and outputs in float32.
        backward: how gradients are made: "autodiff", or "rules" for the layers' hand-written Backward.
        remat: "auto" if the backward pass of `loss` is to run layers again where what it reads would not fit into
            memory; "none" keeps everything.
        memory_limit: bytes that training may take, which solvers check before they start, and "auto" aims at; what the
            device has free unless given.
        axis_name: under `jax.shard_map`, the mesh axis whose devices' batches count as one: losses, their gradients and
            accuracies are those of the batches joined. It means nothing where no such axis is, as on one device.
        sync_bn: whether BatchNorm's statistics are of all these devices' batches, too, rather than of each device's
            own; it means nothing without them.

    Raises:
        CaffejaxError: naming every option with a value that it cannot have.
    """

    kernels: Kernels = "fast"
    precision: Precision = "float32"
    backward: Backward = "autodiff"
    remat: Remat = "none"
    memory_limit: int | None = None
    axis_name: str | None = None
    sync_bn: bool = False

    def __post_init__(self) -> None:
        _raise_of([*_wrong_choices(self), *self._wrong()])

    @property
    def of_layers(self) -> tuple[Kernels, Precision, Backward, str | None, bool]:
        """What each layer computes with; the rest concerns the net as a whole."""
        return self.kernels, self.precision, self.backward, self.axis_name, self.sync_bn

    def plain(self) -> Run:
        """Return the same with the plain lowering of every layer."""
        return replace(self, kernels="reference")

    def _wrong(self) -> Iterator[str]:
        if self.memory_limit is not None and (not is_whole(self.memory_limit) or self.memory_limit < 0):
            yield f"memory_limit must be a number of bytes, not {quoted(self.memory_limit)}"
        if self.axis_name is not None and not (isinstance(self.axis_name, str) and self.axis_name):
            yield f"axis_name must be the name of a mesh axis, or None, not {quoted(self.axis_name)}"
        if not isinstance(self.sync_bn, bool):
            yield f"sync_bn must be True or False, not {quoted(self.sync_bn)}"


@dataclass(frozen=True)
class Share:
    """Which of every `of` batches of the data are read here: numbers `first` to `first + count - 1`; all by default.

    Batches are numbered from the start of training, for every share alike.

    Raises:
        CaffejaxError: naming every field with a value that it cannot have.
    """

    first: int = 0
    count: int = 1
    of: int = 1

    def __post_init__(self) -> None:
        _raise_of(self._wrong())

    def owns(self, number: int) -> bool:
        """Return whether the batch of this number belongs to the share."""
        return self.first <= number % self.of < self.first + self.count

    def nth(self, n: int, start: int = 0) -> int:
        """Return the number of the share's nth batch, counted from 0, of those from number `start` on."""
        rounds, turn = divmod(start, self.of)
        before = rounds * self.count + min(max(turn - self.first, 0), self.count)
        rounds, turn = divmod(before + n, self.count)
        return rounds * self.of + self.first + turn

    def _wrong(self) -> Iterator[str]:
        known = [is_whole(value) for value in (self.first, self.count, self.of)]
        if not known[0] or self.first < 0:
            yield f"share.first must be a whole number from 0 on, not {quoted(self.first)}"
        if not known[1] or self.count < 1:
            yield f"share.count must be a whole number from 1 on, not {quoted(self.count)}"
        if not known[2] or self.of < 1:
            yield f"share.of must be a whole number from 1 on, not {quoted(self.of)}"
        elif all(known) and self.first >= 0 and self.count >= 1 and self.first + self.count > self.of:
            last = self.first + self.count - 1
            yield f"share: of {self.of} batches there is no number {last}: first {self.first}, count {self.count}"


@dataclass(frozen=True)
class Reading:
    """How a net's data is read.

    Attributes:
        seed: what data layers shuffle and crop by.
        workers: how many processes read each data layer's data; 0 for threads of this one, which are enough unless
            much of the reading is Python.
        skip_bad: whether Data and ImageData take the next image for one that cannot be decoded, with a warning, or
            end with an error.
        max_image_pixels: how many pixels an image may have. It is seen from its header, before memory is taken.
        max_hdf5_bytes: how many bytes the data sets read of an HDF5 file may unpack to, beyond those in the file.
        no_python_layers: whether layers that run Python code of modules are refused, before any is imported.
        share: which batches are read by this process, if several share the data. It is no keyword.

    Raises:
        CaffejaxError: naming every option with a value that it cannot have.
    """

    seed: int = 0
    workers: int = 0
    skip_bad: bool = False
    max_image_pixels: int = MAX_IMAGE_PIXELS
    max_hdf5_bytes: int = MAX_HDF5_BYTES
    no_python_layers: bool = False
    share: Share = field(default_factory=Share)

    def __post_init__(self) -> None:
        _raise_of(self._wrong())

    def _wrong(self) -> Iterator[str]:
        if not is_whole(self.seed):
            yield f"seed must be a whole number, not {quoted(self.seed)}"
        if not is_whole(self.workers) or self.workers < 0:
            yield f"workers must be a whole number from 0 on, not {quoted(self.workers)}"
        for name in ("skip_bad", "no_python_layers"):
            if not isinstance(value := getattr(self, name), bool):
                yield f"{name} must be True or False, not {quoted(value)}"
        for name in ("max_image_pixels", "max_hdf5_bytes"):
            if not is_whole(value := getattr(self, name)) or value < 1:
                yield f"{name} must be a whole number from 1 on, not {quoted(value)}"
        if not isinstance(self.share, Share):
            yield f"share must be a Share, not {quoted(self.share)}"


@dataclass(frozen=True)
class Parallel:
    """How training is spread over several devices.

    Attributes:
        batch: "device" if each device takes the prototxt's batch_size examples, as in Caffe; "global" if they share
            them out.
        model: over how many devices each large weight is cut; the devices stand in rows of so many, and each row takes
            a batch.
        shard: what is cut over the rows, too: "none", what the update rule remembers ("optimizer"), or the params as
            well ("params").
        reduce_dtype: the dtype in which the gradients of weights are added up over the devices: "auto" for that of the
            run's products and activations, so bfloat16 with `precision="bfloat16"`, or "float32" always. What has one
            axis, as biases have, is added up in float32 in either, and so is everything where `model` is more than 1.

    Raises:
        CaffejaxError: naming every option with a value that it cannot have.
    """

    batch: BatchOf = "device"
    model: int = 1
    shard: Shard = "none"
    reduce_dtype: ReduceDtype = "auto"

    def __post_init__(self) -> None:
        _raise_of([*_wrong_choices(self), *self._wrong()])

    def _wrong(self) -> Iterator[str]:
        if not is_whole(self.model) or self.model < 1:
            yield f"model must be a whole number from 1 on, not {quoted(self.model)}"


class SolverOptions(TypedDict, total=False):
    """The fields of `Run` and `Reading` as keywords, but for `share`, and the seed, of which solvers have their own."""

    kernels: Kernels
    precision: Precision
    backward: Backward
    remat: Remat
    memory_limit: int | None
    axis_name: str | None
    sync_bn: bool
    workers: int
    skip_bad: bool
    max_image_pixels: int
    max_hdf5_bytes: int
    no_python_layers: bool


class Options(SolverOptions, total=False):
    """The fields of `Run` and `Reading` but for `share` as keywords: `Net(model, kernels="reference", seed=1)`."""

    seed: int


_NAMES = tuple(get_type_hints(Options))


def resolved(run: Run, reading: Reading, options: Mapping[str, Any]) -> tuple[Run, Reading]:
    """Return the two values, with what keywords say in place of their fields.

    Raises:
        CaffejaxError: naming every keyword that is no option, and every value that cannot be.
    """
    problems = [f"there is no option '{name}'{did_you_mean(name, _NAMES)}" for name in options if name not in _NAMES]
    made: list[Any] = []
    for name, value, kind in (("run", run, Run), ("reading", reading, Reading)):
        if not isinstance(value, kind):
            problems.append(f"{name} must be a caffejax.{kind.__name__}, not {quoted(value)}")
            continue
        own = {f.name: options[f.name] for f in fields(value) if f.name in options and f.name in _NAMES}
        try:
            made.append(replace(value, **own))
        except CaffejaxError as error:
            problems += [problem.message for problem in error.problems]
    _raise_of(problems)
    return made[0], made[1]


@cache  # reading annotations takes long, and this is asked for each layer
def choices(name: str) -> tuple[str, ...]:
    """Return what an option of a few values may be; () for other options."""
    hint = (get_type_hints(Options) | get_type_hints(Parallel)).get(name)
    return get_args(hint) if get_origin(hint) is Literal else ()


def quoted(value: Any) -> str:
    """Quote a value for an error's text."""
    return f'"{value}"' if isinstance(value, str) else repr(value)


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number; True and False are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _wrong_choices(run: Run | Parallel) -> Iterator[str]:
    for name in (f.name for f in fields(run)):
        known, value = choices(name), getattr(run, name)
        if known and not (isinstance(value, str) and value in known):
            hint = " (half precision is bfloat16, which needs no loss scaling)" if name == "precision" else ""
            yield f"{name} must be {' or '.join(map(quoted, known))}, not {quoted(value)}{hint}"


def _raise_of(problems: Any) -> None:
    if found := list(problems):
        raise CaffejaxError(found)
