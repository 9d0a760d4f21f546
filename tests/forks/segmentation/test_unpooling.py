"""Tests of Pooling, Unpooling and Upsample."""

import numpy as np

from layer_suite import BATCH, Shape, fork_properties, layer_case, recorded

MAPS: Shape = (BATCH, 4, 5, 6)


def draw_pooling_indices(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw distinct indices, for each channel, into a top of twice the height and width."""
    *planes, height, width = shape
    permutations = [random.permutation(4 * height * width)[: height * width] for _ in range(int(np.prod(planes)))]
    return np.reshape(permutations, shape).astype(np.float32)


test_recorded = recorded("Pooling", "Unpooling", "Upsample", family="segmentation")
test_properties = fork_properties(
    layer_case(
        "Unpooling",
        "unpooling_param { unpool_h: 10 unpool_w: 12 }",
        MAPS,
        MAPS,
        samplers={"b1": draw_pooling_indices},
    ),
    layer_case(
        "Unpooling", "unpooling_param { kernel_size: 2 stride: 2 unpool_h: 10 unpool_w: 12 }", MAPS, name="no_mask"
    ),
    *(
        layer_case(
            "Unpooling",
            f"unpooling_param {{ unpool: {method} kernel_size: 3 stride: 2 unpool_h: 11 unpool_w: 13 }}",
            MAPS,
            name=method,
        )
        for method in ("AVE", "TILE")
    ),
    layer_case(
        "Upsample", "upsample_param { scale: 2 }", MAPS, MAPS, name="segnet", samplers={"b1": draw_pooling_indices}
    ),
    layer_case("Upsample", "upsample_param { scale: 2 }", MAPS, name="yolo"),
)
