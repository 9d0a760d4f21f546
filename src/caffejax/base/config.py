"""Frozen configuration classes for computation, data reading and training.

A field that `option` returns is also a flag of the command line: `cli.flags` reads its name, default, choices and help.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_args, get_origin

from .errors import CaffejaxError, SolverError, did_you_mean, is_integer, raise_if_any

if TYPE_CHECKING:
    import jax
    import optax

Kernels = Literal["fast", "reference"]
Precision = Literal["float32", "tf32", "bfloat16"]
Backward = Literal["autodiff", "rules"]
Remat = Literal["none", "auto"]
BatchOf = Literal["device", "global"]
Shard = Literal["none", "optimizer", "params"]
ReduceDtype = Literal["auto", "float32"]
OnSnapshotError = Literal["stop", "continue"]
FlagKind = Literal["bytes", "count", "positive", "paths"]
EVAL_TYPES = ("classification", "detection", "detection_segmentation")  # how the outputs of a test net are scored
AP_VERSIONS = ("11point", "101point", "MaxIntegral", "Integral")  # of the average precision of detections
MAX_IMAGE_PIXELS = 2**29 // 3  # half a GiB with three channels; Pillow, too, raises an error for larger images
MAX_HDF5_BYTES = 2**31
# fields of `NetConfig` that limit what untrusted files may do
LIMIT_FIELDS = ("max_image_pixels", "max_hdf5_bytes", "no_python_layers")
DEVICE_VARIABLE = "CAFFEJAX_DEVICE"
MESH_AXES = ("data", "model")  # the rows of devices (each row takes a batch), and the devices within a row


def read_device_variable() -> str | None:
    """Return the device in the environment variable `CAFFEJAX_DEVICE`, such as "cpu" or "gpu:1", or None.

    It replaces the device that `--gpu`, a solver's solver_mode, or a script by `caffe.set_mode_gpu` names.
    """
    return os.environ.get(DEVICE_VARIABLE) or None


def option(default: Any, help: str, flag: str = "", kind: FlagKind | None = None, metavar: str | None = None) -> Any:
    """Return a dataclass field that is also a flag of the command line.

    Args:
        default: the field's default.
        help: the flag's help text.
        flag: the flag's name, or "" for the field's name.
        kind: the form of the flag's value: "bytes" for a size such as 8GiB, "count" for an integer of at least 0,
            "positive" for an integer of at least 1, "paths" for a comma-separated list. By default a bool is a switch,
            a Literal offers its values, and any other value is text.
        metavar: the name of the value in the help text.
    """
    return field(default=default, metadata={"help": help, "flag": flag, "kind": kind, "metavar": metavar})


@cache
def get_choices(config_class: type, name: str) -> tuple[str, ...]:
    """Return the allowed values of a configuration class's field if its type is a Literal, otherwise ()."""
    hint = globals().get(config_class.__annotations__[name])  # annotations are strings in this module
    return get_args(hint) if get_origin(hint) is Literal else ()


def quote(value: Any) -> str:
    """Format a value for an error message: strings in double quotes, other values by `repr`."""
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _find_type_problems(config: Any) -> Iterator[str]:
    """Yield a message for each bool or Literal field that has an invalid value."""
    config_class: type = type(config)
    for name, hint in config_class.__annotations__.items():
        allowed_values, value = get_choices(config_class, name), getattr(config, name)
        if allowed_values and not (isinstance(value, str) and value in allowed_values):
            hint = " (half precision is bfloat16, which needs no loss scaling)" if name == "precision" else ""
            yield f"{name} must be {' or '.join(map(quote, allowed_values))}, not {quote(value)}{hint}"
        elif hint == "bool" and not isinstance(value, bool):
            yield f"{name} must be True or False, not {quote(value)}"


def _find_integer_problems(config: Any, prefix: str = "", **minimums: int) -> Iterator[str]:
    """Yield a message for each field that is not an integer of at least its minimum."""
    for name, minimum in minimums.items():
        if not is_integer(value := getattr(config, name)) or value < minimum:
            yield f"{prefix}{name} must be an integer of at least {minimum}, not {quote(value)}"


@dataclass(frozen=True)
class DataShard:
    """The batches that this process reads: numbers `first` to `first + count - 1` of every `total` batches.

    By default these are all batches. Batches are numbered from the start of training, with the same numbers in every
    shard.

    Raises:
        CaffejaxError: if a field has an invalid value; the message names each such field.
    """

    first: int = 0
    count: int = 1
    total: int = 1

    def __post_init__(self) -> None:
        problems = [*_find_integer_problems(self, "shard.", first=0, count=1, total=1)]
        if not problems and self.first + self.count > self.total:
            sum_text = f"{self.first} + {self.count}"
            problems.append(f"shard: first + count must be at most total ({self.total}), but is {sum_text}")
        raise_if_any(CaffejaxError, problems)

    def owns(self, number: int) -> bool:
        """Return whether the shard contains the batch with this number."""
        return self.first <= number % self.total < self.first + self.count

    def nth(self, n: int, start: int = 0) -> int:
        """Return the number of batch `n` (from 0) among the shard's batches whose number is at least `start`."""
        rounds, offset = divmod(start, self.total)
        num_earlier_batches = rounds * self.count + min(max(offset - self.first, 0), self.count)
        rounds, offset = divmod(num_earlier_batches + n, self.count)
        return rounds * self.total + self.first + offset


@dataclass(frozen=True)
class NetConfig:
    """Settings for a net: how it computes, and how it reads its data.

    Attributes:
        kernels: "fast" for the fastest implementation of each operation on the platform, "reference" for the plain
            lowering of every layer.
        precision: "float32" computes in float32 on every platform. "tf32" rounds the factors of matrix products and
            convolutions to 10 bits on platforms that support TF32; CPUs do not support it, and use float32. "bfloat16"
            computes products and activations in bfloat16, and keeps parameters, statistics, sums, losses and outputs in
            float32.
        backward: how gradients are computed: "autodiff", or "rules" for the layers' hand-written Backward.
        remat: "auto" to rematerialize layers in the backward pass of `loss` if the residuals would not fit into memory;
            "none" to keep all residuals.
        memory_limit: the bytes that training may use. Solvers check this before they start, and `remat="auto"` aims at
            it. The default is the memory that is free on the device.
        axis_name: a mesh axis of `jax.shard_map`. The batches of the devices along it form one batch: losses, their
            gradients and accuracies are computed over the joined batch. The setting has no effect outside such an axis,
            for example on one device.
        joins_batches: whether losses and metrics are those of the joined batch of the devices of `axis_name`. Otherwise
            they are means over the devices' batches, as over the passes of `iter_size`.
        sync_bn: whether BatchNorm's statistics are computed over the batches of all devices of `axis_name`, instead of
            over each device's batch. This has no effect without `axis_name`.
        seed: the seed of the data layers' shuffling, crops and mirroring.
        workers: the number of processes that read the data of each data layer. 0 reads in threads of this process,
            which is fast enough unless much of the reading is Python code.
        skip_bad: whether an image that Data or ImageData cannot decode is replaced with the next image, and a warning
            is logged. Otherwise, an error is raised.
        max_image_pixels: the largest number of pixels of an image. It is checked in the image's header, before memory
            is allocated.
        max_hdf5_bytes: the bytes that an HDF5 file's data sets may unpack to, beyond the bytes in the file.
        no_python_layers: whether layers that run Python modules are refused, before a module is imported.
        shard: the batches that this process reads, if several processes share the data. It is not a keyword of nets and
            solvers.
        num_parts: the number of devices among which each batch is divided that is not read by a data layer: one of the
            user's data, or of a Python layer without bottoms. It is not a keyword of nets and solvers.

    Raises:
        CaffejaxError: if an option has an invalid value; the message names each such option.
    """

    kernels: Kernels = option(
        "fast", "fast: the fastest implementation of each operation; reference: the plain lowering"
    )
    precision: Precision = option(
        "float32", "dtype of products and activations; parameters and sums are always float32"
    )
    backward: Backward = option("autodiff", "compute gradients by autodiff, or by the layers' hand-written rules")
    remat: Remat = option("none", "auto: recompute layers in the backward pass if memory would not suffice")
    memory_limit: int | None = option(
        None, "the memory that training may use (default: the device's free memory)", kind="bytes"
    )
    axis_name: str | None = None
    joins_batches: bool = True
    sync_bn: bool = option(False, "compute BatchNorm's statistics over the batches of all devices, not of each device")
    seed: int = 0
    workers: int = option(0, "the number of processes that read each data layer; 0 uses threads", kind="count")
    skip_bad: bool = option(
        False, "replace an image that cannot be decoded by the next one, with a warning", flag="skip_bad_images"
    )
    max_image_pixels: int = option(
        MAX_IMAGE_PIXELS,
        "the largest number of pixels of an image; larger images are refused before decoding",
        kind="positive",
    )
    max_hdf5_bytes: int = option(
        MAX_HDF5_BYTES, "the largest unpacked size of an HDF5 data file beyond the file's size", kind="bytes"
    )
    no_python_layers: bool = option(False, "refuse layers that run Python code from modules, before any is imported")
    shard: DataShard = field(default_factory=DataShard)
    num_parts: int = 1

    def __post_init__(self) -> None:
        raise_if_any(CaffejaxError, [*_find_type_problems(self), *self._problems()])

    @property
    def layer_options(self) -> tuple[Kernels, Precision, Backward, str | None, bool]:
        """The options on which the computation of a layer depends: kernels, precision, backward, axis_name, sync_bn."""
        return self.kernels, self.precision, self.backward, self.axis_name, self.sync_bn

    @property
    def compute_options(self) -> tuple[Any, ...]:
        """The options on which the computation of a net depends: all but the options of its data."""
        return (*self.layer_options, self.remat, self.memory_limit, self.joins_batches)

    def with_plain_kernels(self) -> NetConfig:
        """Return a copy with `kernels="reference"`."""
        return replace(self, kernels="reference")

    def _problems(self) -> Iterator[str]:
        if self.memory_limit is not None and (not is_integer(self.memory_limit) or self.memory_limit < 0):
            yield f"memory_limit must be a number of bytes, not {quote(self.memory_limit)}"
        if self.axis_name is not None and not (isinstance(self.axis_name, str) and self.axis_name):
            yield f"axis_name must be the name of a mesh axis, or None, not {quote(self.axis_name)}"
        if not is_integer(self.seed):
            yield f"seed must be an integer, not {quote(self.seed)}"
        yield from _find_integer_problems(self, workers=0, max_image_pixels=1, max_hdf5_bytes=1, num_parts=1)
        if not isinstance(self.shard, DataShard):
            yield f"shard must be a DataShard, not {quote(self.shard)}"


@dataclass(frozen=True)
class Parallel:
    """Settings for training on several devices.

    The devices form a mesh: each row of `model` devices takes one batch.

    Attributes:
        batch: "device" if each row takes the prototxt's batch_size examples, as each device does in Caffe; "global" if
            the rows divide batch_size among them.
        model: the number of devices that each large weight is sharded over.
        shard: the values that are sharded over the rows as well: "none", "optimizer" for the state of the update rule,
            or "params" for this state and the parameters.
        reduce_dtype: the dtype in which gradients of weights are summed over the devices: "auto" for the dtype of
            products and activations, which is bfloat16 with `precision="bfloat16"`, or "float32". Gradients of arrays
            with one axis, such as biases, are always summed in float32. If `model` exceeds 1, all gradients are summed
            in float32.

    Raises:
        CaffejaxError: if an option has an invalid value; the message names each such option.
    """

    batch: BatchOf = option(
        "device", "device: each device takes batch_size examples, as in Caffe; global: the devices divide batch_size"
    )
    model: int = 1
    shard: Shard = option(
        "none",
        "the arrays that are sharded over the devices that take batches (default: optimizer with --mesh, else none)",
    )
    reduce_dtype: ReduceDtype = option(
        "auto", "dtype in which weights' gradients are summed over devices; auto: the dtype of --precision"
    )

    def __post_init__(self) -> None:
        raise_if_any(CaffejaxError, [*_find_type_problems(self), *_find_integer_problems(self, model=1)])


@dataclass(frozen=True)
class TrainConfig:
    """Settings for training, in addition to the settings in the solver's prototxt.

    Attributes:
        weights: the files to start from, or a single path, in any format that `Net.load` reads. They replace the files
            that the prototxt's `weights` names, which are then not opened.
        strict_weights: whether these files must have weights for every layer with parameters.
        device: the device to train on, or None for JAX's default device.
        devices: several devices, instead of `device`: a number of JAX's devices or a list. With several processes they
            are the devices of all processes. Each device takes batch_size examples, as in Caffe.
        parallel: how training is spread over several devices.
        keep_last: the number of newest checkpoints to keep, or None for all.
        keep_best: the name of a test output; the checkpoint with its best value is kept too. The best value is the
            lowest value of a loss, and the highest value of any other output.
        checkpoint_only: whether to write only checkpoints, without the files from which Caffe can resume. Caffe's files
            are written by the first process, which needs memory for all parameters.
        on_snapshot_error: "stop" to raise an error if a snapshot cannot be written, or "continue" to log a warning and
            continue until the next snapshot is due. If the last snapshot of training cannot be written, an error is
            always raised. Several processes support only "stop".
        steps_per_dispatch: the number of iterations to dispatch together if no display, test or snapshot is due between
            them. This makes small nets on fast devices faster. The batches of all these iterations are in memory
            together. XLA may compile a step differently among several, as with Deconvolution on CPUs: last digits then
            depend on which iterations are together, and a resumed run may group them differently. The default, None,
            stands for 1, and for small nets on one device for up to 50 in a program whose bits do not depend on that;
            see `core.solver.joint_steps.can_join_steps`.
        debug_nans: whether to check every step for NaN and infinity, and to name the layer where they first occur. This
            is slower.
        resume: a snapshot from which the solver starts: a <prefix>.orbax folder, a step in such a folder, or a
            .solverstate[.h5] file. "auto" restores the newest of the solver's own snapshot prefix, by iteration; if
            there is none, training starts at iteration 0. If a snapshot is restored, no files of `weights` are opened.
        seed: the seed of all randomness if the prototxt has no `random_seed`, or None for a new seed in each run.
        optimizer: an optax transformation that replaces Caffe's update, or None. It takes the mean of gradients over
            `iter_size` passes, and the loss as the argument `value`. Settings of the update, such as type, base_lr and
            weight_decay, and multipliers are ignored, except that parameters whose lr_mult is 0 stay. No .solverstate
            is written, because its format holds the state of Caffe's rules only; checkpoints contain the state.
        net_config: how the nets compute and read data. The solver's seed replaces its seed. Trained and saved
            parameters are always float32.

    Raises:
        SolverError: if an option has an invalid value; the message names each such option.
    """

    weights: Sequence[str | PathLike[str]] = option(
        (),
        "start from these .caffemodel[.h5] files, separated by commas, and not from those of the solver",
        kind="paths",
        metavar="FILES",
    )
    strict_weights: bool = option(False, "refuse weights that lack layers of the net, instead of logging these layers")
    device: jax.Device | None = None
    devices: int | Sequence[jax.Device] | None = None
    parallel: Parallel = Parallel()
    keep_last: int | None = option(None, "the number of newest checkpoints to keep (default: all)", kind="positive")
    keep_best: str | None = option(
        None, "also keep the checkpoint with the best value of this test output", metavar="NAME"
    )
    checkpoint_only: bool = option(
        False, "write checkpoints only, without Caffe's files, for which one process collects all parameters"
    )
    on_snapshot_error: OnSnapshotError = option(
        "stop",
        "stop or continue if a snapshot cannot be written; several processes, and the last snapshot, always stop",
    )
    steps_per_dispatch: int | None = option(
        None,
        "the number of iterations to dispatch together, for small nets on fast devices; last digits may change "
        "(default: 1, or for small nets on one device up to 50 with the same bits as 1)",
        kind="positive",
    )
    debug_nans: bool = option(False, "check every step, and name the layer where NaN or infinity first occurs")
    resume: str | PathLike[str] | None = option(
        None,
        "resume from a <prefix>.orbax folder (its newest step), a step in it, or a .solverstate[.h5]; auto: from the "
        "newest snapshot of the solver's snapshot_prefix, or start at iteration 0 if there is none",
        flag="snapshot",
        metavar="PATH",
    )
    seed: int | None = None
    optimizer: optax.GradientTransformation | None = None
    net_config: NetConfig = NetConfig()

    def __post_init__(self) -> None:
        if isinstance(self.weights, str | PathLike):
            object.__setattr__(self, "weights", (self.weights,))
        raise_if_any(SolverError, [*_find_type_problems(self), *self._problems()])

    @classmethod
    def from_keywords(cls, **keywords: Unpack[SolverOptions]) -> TrainConfig:
        """Return a configuration from fields of this class and of `NetConfig`.

        Raises:
            SolverError: if a keyword is unknown or an option has an invalid value; the message names each of them.
        """
        names = {f.name for f in fields(cls)}
        settings: dict[str, Any] = {name: value for name, value in keywords.items() if name in names}
        net_options = {name: value for name, value in keywords.items() if name not in names}
        problems: list[Any] = []
        try:
            settings["net_config"] = resolve_options(
                settings.get("net_config", NetConfig()), net_options, (*_OPTION_NAMES, *names), "net_config"
            )
        except CaffejaxError as error:
            settings["net_config"], problems = NetConfig(), [*error.problems]
        try:
            config = cls(**settings)
        except CaffejaxError as error:
            problems = [*error.problems, *problems]
        if problems:
            raise SolverError(problems)
        return config

    def _problems(self) -> Iterator[str]:
        import jax

        if not (isinstance(self.weights, Sequence) and all(isinstance(w, str | PathLike) for w in self.weights)):
            yield f"weights must be a path or a list of paths, not {quote(self.weights)}"
        if not (self.device is None or isinstance(self.device, jax.Device)):
            yield f"device must be a JAX device, such as jax.devices()[0], not {quote(self.device)}"
        devices: Any = self.devices
        is_device_list = isinstance(devices, Sequence) and devices and all(isinstance(d, jax.Device) for d in devices)
        if not (devices is None or is_device_list or (is_integer(devices) and devices > 0)):
            yield f"devices must be an integer of at least 1 or a list of JAX devices, not {quote(devices)}"
        if self.device is not None and devices is not None:
            yield "device and devices are both set; pass only one of them"
        for name, config_class in (("parallel", Parallel), ("net_config", NetConfig)):
            if not isinstance(value := getattr(self, name), config_class):
                yield f"{name} must be a caffejax.{config_class.__name__}, not {quote(value)}"
        if not (self.keep_last is None or (is_integer(self.keep_last) and self.keep_last > 0)):
            yield f"keep_last must be None or an integer of at least 1, not {quote(self.keep_last)}"
        if not (self.seed is None or is_integer(self.seed)):
            yield f"seed must be None or an integer, not {quote(self.seed)}"
        if not (self.keep_best is None or isinstance(self.keep_best, str)):
            yield f"keep_best must be None or the name of an output, not {quote(self.keep_best)}"
        if self.steps_per_dispatch is not None:
            yield from _find_integer_problems(self, steps_per_dispatch=1)
        if self.on_snapshot_error == "continue" and jax.process_count() > 1:
            yield "on_snapshot_error must be 'stop' if several processes train together: they wait for each other"


class NetOptions(TypedDict, total=False):
    """The fields of `NetConfig` that are keywords of nets and solvers."""

    kernels: Kernels
    precision: Precision
    backward: Backward
    remat: Remat
    memory_limit: int | None
    axis_name: str | None
    joins_batches: bool
    sync_bn: bool
    workers: int
    skip_bad: bool
    max_image_pixels: int
    max_hdf5_bytes: int
    no_python_layers: bool


class Options(NetOptions, total=False):
    """The keywords of `Net`: `Net(model, kernels="reference", seed=1)`."""

    seed: int


class SolverOptions(NetOptions, total=False):
    """The keywords of `Solver`: the fields of `TrainConfig` and `NetConfig`."""

    weights: str | PathLike[str] | Sequence[str | PathLike[str]]
    strict_weights: bool
    device: jax.Device | None
    devices: int | Sequence[jax.Device] | None
    parallel: Parallel
    keep_last: int | None
    keep_best: str | None
    checkpoint_only: bool
    on_snapshot_error: OnSnapshotError
    steps_per_dispatch: int | None
    debug_nans: bool
    resume: str | PathLike[str] | None
    seed: int | None
    optimizer: optax.GradientTransformation | None
    net_config: NetConfig


_OPTION_NAMES = (*NetOptions.__annotations__, "seed")


def resolve_options(
    config: NetConfig, options: Mapping[str, Any], names: Sequence[str] = _OPTION_NAMES, keyword: str = "config"
) -> NetConfig:
    """Return a copy of a configuration with some of its fields replaced.

    Args:
        config: the original configuration.
        options: new values by field name.
        names: the valid names, from which a message suggests a correction of an unknown name.
        keyword: the name of the argument `config` in messages.

    Raises:
        CaffejaxError: if an option is unknown or has an invalid value; the message names each such option.
    """
    problems = [
        f"there is no option '{name}'{_suggest_option(name, names)}" for name in options if name not in _OPTION_NAMES
    ]
    if not isinstance(config, NetConfig):
        problems.append(f"{keyword} must be a caffejax.NetConfig, not {quote(config)}")
        config = NetConfig()
    try:
        config = replace(config, **{name: value for name, value in options.items() if name in _OPTION_NAMES})
    except CaffejaxError as error:
        problems += [problem.message for problem in error.problems]
    raise_if_any(CaffejaxError, problems)
    return config


_RELATED_OPTIONS = {"dtype": "precision", "jit": "kernels", "rng": "seed", "random_seed": "seed", "snapshot": "resume"}


def _suggest_option(name: str, names: Sequence[str]) -> str:
    """Return the end of a message about an unknown option: the option that is meant, or else all options."""
    related = _RELATED_OPTIONS.get(name.lower())
    hint = f"; did you mean '{related}'?" if related in names else did_you_mean(name, names)
    return hint or f"; the options are {', '.join(sorted(names))}"
