"""Tests of MatWrite."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat

from caffejax.base.errors import CaffejaxError, DataError
from caffejax.core.program.net import Net
from layer_nets import draw_normal, net_text
from layer_suite import BATCH, Shape, fork_properties, layer_case

MAPS: Shape = (BATCH, 4, 5, 6)

test_properties = fork_properties(
    layer_case("MatWrite", 'mat_write_param { prefix: "suite_" }', MAPS, tops=0),
)


IMAGE_SHAPE = (2, 4, 5, 6)

RANDOM = np.random.default_rng(0)


def test_mat_write(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("first.jpg 1\nsecond.jpg 0\n")
    text = f'mat_write_param {{ prefix: "{tmp_path}/" source: "{tmp_path}/list.txt" strip: 4 }}'
    net = Net(net_text("MatWrite", text, [(2, 3, 4, 5), (2,)], tops=0))
    for k in range(2):
        net.forward({}, {}, {"b0": (x := draw_normal(2, 3, 4, 5)), "b1": np.full(2, k, np.float32)})
        np.testing.assert_array_equal(loadmat(tmp_path / f"{('first', 'second')[k]}_blob_0.mat")["data"], x.T)
    assert loadmat(tmp_path / "second_blob_1.mat")["data"].ravel().tolist() == [1, 1]
    with pytest.raises(CaffejaxError, match="has 2 names, but this is pass 3"):
        net.forward({}, {}, {"b0": x, "b1": np.zeros(2, np.float32)})
    failing_net = Net(net_text("MatWrite", f'mat_write_param {{ prefix: "{tmp_path}/no/" }}', [(2,)], tops=0))
    with pytest.raises(DataError, match="no/iter_0_blob_0"):
        failing_net.forward({}, {}, {"b0": np.zeros(2, np.float32)})


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        ("MatWrite", 'mat_write_param { prefix: "x" period: 0 }', [IMAGE_SHAPE], "period must be at least 1"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Any], message: str) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{message}"):
        Net(net_text(layer_type, text, shapes, tops=layer_type != "MatWrite"), "TRAIN")
