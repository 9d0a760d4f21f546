"""Speed on CPUs: oneDNN kernels, frozen nets, their cache, settings of the process.

Core knows none of this: it finds the forms that are registered here in `core.ops.implementations`.
"""

from ..core.ops.implementations import register_forms

register_forms(
    "cpu",
    {
        "convolution": f"{__name__}.kernels.convolution_cpu:correlate",
        "convolution_diffs": f"{__name__}.kernels.convolution_cpu:correlate_diffs",
        **{
            operation: f"{__name__}.kernels.operations:{operation}"
            for operation in (
                *("matmul", "matmul_diffs", "max_pool", "max_pool_diff"),
                *("normalize_response", "normalize_response_diff", "rectangle_maxima", "rectangle_places"),
            )
        },
        **{
            operation: f"{__name__}.kernels.channels_last:{operation}"
            for operation in (
                *("normalize_channels", "normalize_channels_diffs", "channel_affine", "add_bias_to_rows"),
                *("apply_elementwise", "relu", "concatenate_channels"),
                *("window_maxima", "window_means", "window_means_diff"),
            )
        },
        "momentum_update": f"{__name__}.kernels.operations:momentum_update",
        "stored_programs": f"{__name__}.kernels.executable_cache:CachedPrograms",
        "program_key": f"{__name__}.program_keys:net_cache_key",
        "freeze": f"{__name__}.frozen.frozen_net:freeze",
        "freeze_passes": f"{__name__}.frozen.frozen_pass_cache:freeze_passes",
        "tune_process": f"{__name__}.process_settings:tune_process",
    },
)
register_forms("host", {"non_max_suppression": f"{__name__}.kernels.onednn_program:non_max_suppression"})
