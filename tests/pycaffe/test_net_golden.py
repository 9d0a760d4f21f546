"""Nets compared with recorded results of Caffe."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import caffejax.pycaffe as caffe

from .conftest import CLOSE

GOLDEN = Path(__file__).parents[1] / "golden"


def list_recorded_nets() -> list[str]:
    index = json.loads((GOLDEN / "nets" / "index.json").read_text())["nets"]
    return [c["case"] for c in index if (GOLDEN / "nets" / f"{c['case']}.npz").exists()]


OVERWRITTEN_DIFFS = {"loss_weights": {"a", "a/0", "a/1"}}  # see tests/core/graph/test_golden_nets.py

LAYER_BY_LAYER = ("share_permissive", "propagate_one_branch", "loss_weight_non_loss")


@pytest.mark.parametrize(
    ("name", "layer_by_layer"), [*((n, False) for n in list_recorded_nets()), *((n, True) for n in LAYER_BY_LAYER)]
)
def test_values_and_diffs_equal_caffe(name: str, layer_by_layer: bool) -> None:
    values = dict(np.load(GOLDEN / "nets" / f"{name}.npz"))
    recorded = json.loads((GOLDEN / "nets" / f"{name}.json").read_text())["runs"][0]
    phase = caffe.TRAIN if recorded["phase"] == "TRAIN" else caffe.TEST
    net = caffe.Net(str(GOLDEN / "nets" / f"{name}.prototxt"), phase)
    assert list(net.blobs) == [b["name"] for b in recorded["built"]["blobs"]]
    assert [layer.type for layer in net.layers] == [layer["type"] for layer in recorded["built"]["layers"]]

    def select_arrays(prefix: str) -> list[tuple[str, np.ndarray]]:
        return [(k.removeprefix(f"{prefix}/"), v) for k, v in values.items() if k.startswith(f"{prefix}/")]

    def find_blob(slot: str) -> Any:
        layer, index = slot.rsplit("/", 1)
        return net.params[layer][int(index)]

    for slot, value in select_arrays("param"):
        find_blob(slot).data[...] = value
    for top, value in select_arrays("in"):
        net.blobs[top].data[...] = value
    if layer_by_layer:
        net.after_forward(lambda i: None)
    loss = net._forward(0, len(net.layers) - 1)
    net.backward()
    np.testing.assert_allclose(loss, values["total_loss"], **CLOSE)
    for top, value in select_arrays("blob"):
        np.testing.assert_allclose(net.blobs[top].data, value, err_msg=top, **CLOSE)
    for top, value in select_arrays("blobdiff"):
        if top not in OVERWRITTEN_DIFFS.get(name, ()):
            np.testing.assert_allclose(net.blobs[top].diff, value, err_msg=f"diff of {top}", **CLOSE)
    for slot, value in select_arrays("paramdiff"):
        if slot not in OVERWRITTEN_DIFFS.get(name, ()):
            np.testing.assert_allclose(find_blob(slot).diff, value, err_msg=slot, **CLOSE)
