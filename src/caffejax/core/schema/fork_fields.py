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
_INT8 = "it contains ranges for an int8 engine"
_NODES = "it distributes training over machines"
_LOSS_SCALE = "it scales gradients for float16, which is not needed for bfloat16"
_MYCAFFE_DATA = "it concerns MyCaffe's database of images, which is not read"
_TRAINER = "it is for the trainers of MyCaffe's application"
_PRINTS = "it only selects what is printed"

# the reason why a field is ignored, by message and field
IGNORED_FIELDS: dict[str, dict[str, str]] = {
    "NetParameter": {
        "engine": _LIBRARY,
        "compile_net_state": _SPEED,
        "default_forward_type": _PRECISION,
        "default_backward_type": _PRECISION,
        "default_forward_math": _PRECISION,
        "default_backward_math": _PRECISION,
        "default_conv_algos_override": _LIBRARY,
        "default_cudnn_math_override": _LIBRARY,
        "global_grad_scale": _LOSS_SCALE,
        "global_grad_scale_adaptive": _LOSS_SCALE,
        "reduce_buckets": _NODES,
        "eltwise_mem_sharing": _SPEED,
        "multinode": _NODES,
        "mem_param": _SPEED,
        "enable_memory_stats": _PRINTS,
        **dict.fromkeys(("model_type", "base_weight_file", "base_tokenizer_file"), _TRAINER),
    },
    "LayerParameter": {
        "engine": _LIBRARY,
        "forward_type": _PRECISION,
        "backward_type": _PRECISION,
        "forward_math": _PRECISION,
        "backward_math": _PRECISION,
        "cudnn_math_override": _LIBRARY,
        "debug": _PRINTS,
        "quantization_param": _INT8,
        "multinode": _NODES,
        "mn_activation_param": _NODES,
        "mn_grad_compress_param": _NODES,
        "reshape_every_iter": _SPEED,
        "group_start": _PRINTS,
        "connect_loss_event": _TRAINER,
        "max_bottom_count": "it concerns MyCaffe's phase RUN",
        "use_halfsize": _PRECISION,
        "debug_param": "nothing is stored; the top of a Debug layer is its bottom",
        "strict_dim": "all dimensions are checked in any case",
    },
    "BatchNormParameter": {"engine": _LIBRARY},
    "ConcatParameter": {"engine": _LIBRARY},
    "ConvolutionParameter": {
        **dict.fromkeys(("conv_algos_override", "conv_algorithm", "cudnn_enable_tensor_cores"), _LIBRARY),
        **dict.fromkeys(("cudnn_workspace_limit", "cudnn_worspace_limit"), _SPEED),
        **dict.fromkeys(("cudnn_workspace_allow_on_groups", "cudnn_worspace_allow_on_groups"), _SPEED),
    },
    "DataParameter": {
        **dict.fromkeys(("threads", "parser_threads", "disk_reader_threads", "cache", "precache"), _SPEED),
        **dict.fromkeys(("verbose", "display_timing", "enable_debug_output"), _PRINTS),
        **dict.fromkeys(("enable_random_selection", "enable_pair_selection", "primary_data"), _MYCAFFE_DATA),
        **dict.fromkeys(("synchronize_with", "synchronize_target", "balance_matches", "label_type"), _MYCAFFE_DATA),
        **dict.fromkeys(("output_image_information", "enable_noise_for_nonmatch", "time_align"), _MYCAFFE_DATA),
    },
    "DropoutParameter": {
        "engine": _LIBRARY,
        **dict.fromkeys(("random_seed", "seed"), "randomness comes from the solver's seed"),
    },
    "EltwiseParameter": {"engine": _LIBRARY},
    "EmbedParameter": {"backward_compute_type": _SPEED},
    "ImageDataParameter": dict.fromkeys(("threads", "cache", "precache"), _SPEED),
    "InnerProductParameter": {"engine": _LIBRARY, "output_contains_predictions": _TRAINER},
    "MemoryDataParameter": dict.fromkeys(("primary_data", "label_type"), _MYCAFFE_DATA),
    "MultiBoxLossParameter": {"use_gpu": _LIBRARY},
    "RecurrentParameter": dict.fromkeys(
        ("engine", "cudnn_enable_tensor_cores", "use_cudnn_rnn8_if_supported"), _LIBRARY
    )
    | {"dropout_seed": "randomness comes from the solver's seed"},
    "SoftmaxParameter": dict.fromkeys(("algorithm", "algorithm_train"), _LIBRARY),
    "TransformationParameter": {
        **dict.fromkeys(("use_image_mean", "use_imagedb_mean"), f"{_MYCAFFE_DATA}; name a mean_file"),
        "color_order": _MYCAFFE_DATA,
    },
    "DistortionParameter": {"use_gpu": _LIBRARY, "random_seed": "randomness comes from the solver's seed"},
    "ReLUParameter": {"fuse": _SPEED},
    "SolverParameter": {
        "engine": _LIBRARY,
        "solver_data_type": _PRECISION,
        "store_blobs_in_old_format": "snapshots are in BVLC Caffe's form, which all forks read",
        "group_id": _NODES,
        "richness": "it limits the memory of a GPU library",
        "disabled_update": _NODES,
        **dict.fromkeys(("custom_trainer", "custom_trainer_properties"), _TRAINER),
        **dict.fromkeys(("output_average_results", "accuracy_average_window", "enable_clip_gradient_status"), _PRINTS),
        "verbose_optimization_output": _PRINTS,
        **dict.fromkeys(("snapshot_include_weights", "snapshot_include_state"), "snapshots always have both"),
        **dict.fromkeys(("use_test_net_for_running", "use_training_net_for_testing"), _TRAINER),
        "lbgfs_corrections": "there is no L-BFGS solver",
        "ransom_seed": "MyCaffe writes random_seed under this name, and does not read it",
        "test_and_snapshot_last_epochs": "test_interval and snapshot set the iterations of tests and snapshots",
    },
}


# supported by all layer types
_SUPPORTED_FIELDS = {
    "FillerParameter": ("alpha", "scale", "width", "height", "channels", "expectation_option", "xy"),
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
    fields_of_forks, accepted = (
        load_fork_fields().get(name, {}),
        (*IGNORED_FIELDS.get(name, {}), *_SUPPORTED_FIELDS.get(name, ())),
    )
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
    for message in (layer, *(getattr(layer, name) for name in params if layer.HasField(name))):
        names = fork_fields.get(message.DESCRIPTOR.name, ())
        for field, _ in message.ListFields():
            if field.name in names and field.name not in supported:
                return True
    return False


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
