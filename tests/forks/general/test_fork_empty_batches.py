"""Forks' types with empty batches, or with bottoms that have too few axes."""

import jax
import jax.numpy as jnp
import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.core.program.net import Net
from layer_nets import net_text

EMPTY_CASES = [
    ("ROIPooling", "roi_pooling_param { pooled_h: 2 pooled_w: 2 }", [(1, 2, 6, 6), (0, 5)], (0, 2, 2, 2)),
    ("MultiBoxLoss", "multibox_loss_param { num_classes: 2 }", [(1, 16), (1, 8), (1, 2, 16), (1, 1, 0, 8)], ()),
    ("BN", "", [(0, 3, 4, 4)], (0, 3, 4, 4)),
]


@pytest.mark.parametrize(("layer_type", "param", "shapes", "top"), EMPTY_CASES, ids=[n[0] for n in EMPTY_CASES])
def test_zero_rows_are_allowed(
    layer_type: str, param: str, shapes: list[tuple[int, ...]], top: tuple[int, ...]
) -> None:
    net = Net(net_text(layer_type, param, shapes), "TRAIN")
    inputs = {f"b{i}": jnp.ones(s) for i, s in enumerate(shapes)}
    blobs, _ = net.jit(net.apply)(*net.init(jax.random.key(0)), inputs)
    assert blobs["t0"].shape == top


INVALID_CASES = [
    ("FrcnnOutput", "", [(3, 4), (3, 16), (3, 5), (0, 2)], "takes one image"),
    ("FrcnnOutput", "", [(), (3, 8), (3, 5), (1, 2)], "bottoms must have rows, but probabilities have no axes"),
    ("ScaleRoute", "", [(0, 5)], "needs one ROI or more"),
    (
        "BoxOutput",
        "box_output_param { field_w: 4 field_h: 4 downsample_rate: 4294967295 }",
        [(1, 6, 2, 2)],
        "settings is too large",
    ),
]


@pytest.mark.parametrize(("layer_type", "param", "shapes", "message"), INVALID_CASES)
def test_invalid_settings_are_refused(layer_type: str, param: str, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(CaffejaxError, match=f"layer 'layer' .{layer_type}.: .*{message}"):
        Net(net_text(layer_type, param, shapes), "TEST")
