"""Fields that forks of Caffe added to its messages. Each field is supported, ignored with a warning, or refused."""

from __future__ import annotations

import functools
import json
from collections.abc import Container, Iterable, Iterator
from importlib.resources import files

from google.protobuf.message import Message

from ...base.human_readable import format_count
from .caffe_pb2 import LayerParameter, NetParameter

_LIBRARY = "it chooses among a library's implementations"
_PRECISION = "it is a precision for computing or storing; use --precision instead"
_SPEED = "it only affects the fork's speed or memory"
_LOSS_SCALE = "it scales gradients for float16, which is not needed for bfloat16"
_NODES = "it distributes training over machines"
_MYCAFFE_DATA = "it concerns MyCaffe's database of images, which is not read"
_TRAINER = "it is for the trainers of MyCaffe's application"
_SEED = "randomness comes from the solver's seed"
_PRINTS = "it only selects what is printed"

# the fields that are ignored, by message and reason
_IGNORED_BY_REASON: dict[str, dict[str, str]] = {
    "NetParameter": {
        _LIBRARY: "engine default_conv_algos_override default_cudnn_math_override",
        _SPEED: "compile_net_state eltwise_mem_sharing mem_param",
        _PRECISION: "default_forward_type default_backward_type default_forward_math default_backward_math",
        _LOSS_SCALE: "global_grad_scale global_grad_scale_adaptive",
        _NODES: "reduce_buckets multinode",
        _PRINTS: "enable_memory_stats",
        _TRAINER: "model_type base_weight_file base_tokenizer_file",
    },
    "LayerParameter": {
        _LIBRARY: "engine cudnn_math_override",
        _PRECISION: "forward_type backward_type forward_math backward_math use_halfsize",
        _PRINTS: "debug group_start",
        "it contains ranges for an int8 engine": "quantization_param",
        _NODES: "multinode mn_activation_param mn_grad_compress_param",
        _SPEED: "reshape_every_iter",
        _TRAINER: "connect_loss_event",
        "it concerns MyCaffe's phase RUN": "max_bottom_count",
        "nothing is stored; the top of a Debug layer is its bottom": "debug_param",
        "all dimensions are checked in any case": "strict_dim",
    },
    **{name: {_LIBRARY: "engine"} for name in ("BatchNormParameter", "ConcatParameter", "EltwiseParameter")},
    "ConvolutionParameter": {
        _LIBRARY: "conv_algos_override conv_algorithm cudnn_enable_tensor_cores",
        _SPEED: (
            "cudnn_workspace_limit cudnn_worspace_limit cudnn_workspace_allow_on_groups cudnn_worspace_allow_on_groups"
        ),
    },
    "DataParameter": {
        _SPEED: "threads parser_threads disk_reader_threads cache precache",
        _PRINTS: "verbose display_timing enable_debug_output",
        _MYCAFFE_DATA: (
            "enable_random_selection enable_pair_selection primary_data synchronize_with synchronize_target "
            "balance_matches label_type output_image_information enable_noise_for_nonmatch time_align"
        ),
    },
    "DropoutParameter": {_LIBRARY: "engine", _SEED: "random_seed seed"},
    "EmbedParameter": {_SPEED: "backward_compute_type"},
    "ImageDataParameter": {_SPEED: "threads cache precache"},
    "InnerProductParameter": {_LIBRARY: "engine", _TRAINER: "output_contains_predictions"},
    "MemoryDataParameter": {_MYCAFFE_DATA: "primary_data label_type"},
    "MultiBoxLossParameter": {_LIBRARY: "use_gpu"},
    "RecurrentParameter": {
        _LIBRARY: "engine cudnn_enable_tensor_cores use_cudnn_rnn8_if_supported",
        _SEED: "dropout_seed",
    },
    "SoftmaxParameter": {_LIBRARY: "algorithm algorithm_train"},
    "TransformationParameter": {
        f"{_MYCAFFE_DATA}; name a mean_file": "use_image_mean use_imagedb_mean",
        _MYCAFFE_DATA: "color_order",
    },
    "DistortionParameter": {_LIBRARY: "use_gpu", _SEED: "random_seed"},
    "ReLUParameter": {_SPEED: "fuse"},
    "SolverParameter": {
        _LIBRARY: "engine",
        _PRECISION: "solver_data_type",
        "snapshots are in BVLC Caffe's form, which all forks read": "store_blobs_in_old_format",
        _NODES: "group_id disabled_update",
        "it limits the memory of a GPU library": "richness",
        _TRAINER: "custom_trainer custom_trainer_properties use_test_net_for_running use_training_net_for_testing",
        _PRINTS: (
            "output_average_results accuracy_average_window enable_clip_gradient_status verbose_optimization_output"
        ),
        "snapshots always have both": "snapshot_include_weights snapshot_include_state",
        "there is no L-BFGS solver": "lbgfs_corrections",
        "MyCaffe writes random_seed under this name, and does not read it": "ransom_seed",
        "test_interval and snapshot set the iterations of tests and snapshots": "test_and_snapshot_last_epochs",
    },
}
IGNORED_FIELDS = {
    message: {field: reason for reason, fields in reasons.items() for field in fields.split()}
    for message, reasons in _IGNORED_BY_REASON.items()
}
"""The reason why a field is ignored, by message and field."""

# supported by all layer types
_SUPPORTED_FIELDS = {
    "FillerParameter": ("diag_val", "alpha", "scale", "width", "height", "channels", "expectation_option", "xy"),
    "LossParameter": ("pre_fixed_normalizer",),
}


@functools.cache
def load_fork_fields() -> dict[str, dict[str, str]]:
    """Return `{message: {field: the forks that have it}}`, from forks.json."""
    return json.loads(files(__package__).joinpath("forks.json").read_text())


def unknown_settings(message: Message, supported: Container[str] = ()) -> Iterator[str]:
    """Yield `field (of fork)` for each unsupported field of a fork whose value differs from the field's default.

    Fields that are supported, or ignored with a warning, are omitted. Nested messages such as fillers are included.

    Args:
        message: the settings.
        supported: the supported fields.
    """
    name = message.DESCRIPTOR.name
    fields_of_forks = load_fork_fields().get(name, {})
    accepted = (*IGNORED_FIELDS.get(name, {}), *_SUPPORTED_FIELDS.get(name, ()))
    for field, value in message.ListFields():
        if field.name in fields_of_forks and field.name not in supported and value != field.default_value:
            if field.name not in accepted:
                yield f"{field.name} (of {fields_of_forks[field.name]})"
        elif isinstance(value, Message):
            yield from (f"{field.name}.{inner}" for inner in unknown_settings(value, supported))


def sets_fork_field(layer: LayerParameter, params: Iterable[str], supported: Container[str] = ()) -> bool:
    """Return whether a layer sets a field that only forks have, in LayerParameter or in one of its messages.

    Args:
        layer: the layer.
        params: the names of the messages to look into, such as "loss_param".
        supported: fields that do not count.
    """
    fork_fields = load_fork_fields()
    return any(
        field.name in fork_fields.get(message.DESCRIPTOR.name, ()) and field.name not in supported
        for message in (layer, *(getattr(layer, name) for name in params if layer.HasField(name)))
        for field, _ in message.ListFields()
    )


def ignored_fields(message: Message) -> Iterator[tuple[str, str]]:
    """Yield `field (of fork)` and the reason for each ignored fork field that a message sets."""
    name = message.DESCRIPTOR.name
    for field, value in message.ListFields():
        reason = IGNORED_FIELDS.get(name, {}).get(field.name)
        if reason and field.name in load_fork_fields().get(name, {}) and value != field.default_value:
            yield f"{field.name} (of {load_fork_fields()[name][field.name]})", reason


def ignored_settings(net: NetParameter, layers: Iterable[tuple[LayerParameter, str | None]]) -> list[str]:
    """Return a sentence for each ignored fork field in a net and its layers.

    Args:
        net: the net.
        layers: pairs of a layer and the name of its type's parameter field, or None if the type has no such field.
    """
    counts = {f"{setting} is ignored: {reason}": 0 for setting, reason in ignored_fields(net)}
    for layer, param in layers:
        messages = [name for name in (param, "transform_param", "loss_param") if name and layer.HasField(name)]
        nested = [(f"{name}.{s}", reason) for name in messages for s, reason in ignored_fields(getattr(layer, name))]
        for setting, reason in (*ignored_fields(layer), *nested):
            sentence = f"{setting} is ignored: {reason}"
            counts[sentence] = counts.get(sentence, 0) + 1
    return [f"{sentence} ({format_count(n, 'layer')})" if n else sentence for sentence, n in counts.items()]
