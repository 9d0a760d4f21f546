"""Settings of forks that change nothing of what is computed here, each with the reason; one warning says so."""

from __future__ import annotations

_LIBRARY = "it chooses among a library's implementations"
_PRECISION = "it is a precision to compute or store in; --precision says that here"
_SPEED = "it concerns the fork's own speed or memory"
_INT8 = "it holds ranges for an int8 engine"
_NODES = "it spreads training over machines"
_LOSS_SCALE = "it scales gradients up and down again for float16, which bfloat16 does not need"
_PRINTS = "it only says what is printed"

# by message, then by field
HINTS: dict[str, dict[str, str]] = {
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
        "strict_dim": "all dimensions are checked in any case",
    },
    "BatchNormParameter": {"engine": _LIBRARY},
    "ConcatParameter": {"engine": _LIBRARY, "per_fla_fuse": _SPEED},
    "ConvolutionParameter": {"conv_algos_override": _LIBRARY, "conv_algorithm": _LIBRARY},
    "DataParameter": {
        **dict.fromkeys(("threads", "parser_threads", "disk_reader_threads", "cache", "precache"), _SPEED),
        "verbose": _PRINTS,
    },
    "DropoutParameter": {"engine": _LIBRARY, "random_seed": "randomness comes from the solver's seed"},
    "EltwiseParameter": {"engine": _LIBRARY},
    "ImageDataParameter": dict.fromkeys(("threads", "cache", "precache"), _SPEED),
    "InnerProductParameter": {"engine": _LIBRARY},
    "ReLUParameter": {"fuse": _SPEED},
    "SolverParameter": {
        "engine": _LIBRARY,
        "solver_data_type": _PRECISION,
        "store_blobs_in_old_format": "snapshots are in BVLC Caffe's form, which all forks read",
        "group_id": _NODES,
        "richness": "it limits the memory of a GPU library",
        "test_and_snapshot_last_epochs": "tests and snapshots are when test_interval and snapshot say",
    },
}
