"""Results of Caffe for whole nets, as dumps, against this package on the same inputs and params."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caffejax.core.program.net import Net
from caffejax.tools.debugging.dumps import Dump, DumpedLayer, compare_dumps, replay_dump

GOLDEN = Path(__file__).parents[2] / "golden" / "nets"
RECORDED_NETS = sorted(path.stem for path in GOLDEN.glob("*.npz"))
KINDS_BY_PREFIX = {"in": "input", "blobdiff": "diff", "paramdiff": "grad"}

QUICK_NETS = ("loss_weights", "share_permissive", "propagate_one_branch")

# diffs that Caffe gets wrong, see docs/differences.md: HingeLoss works in its bottom's diff
WRONG_IN_CAFFE = {"loss_weights": {("a_a_0_split", "diff", "a"), ("a", "grad", "0"), ("a", "grad", "1")}}


def load_recorded(name: str) -> tuple[Dump, Net]:
    """Return the recorded results of a net as a dump, and the net."""
    recorded_run = json.loads((GOLDEN / f"{name}.json").read_text())["runs"][0]
    layers = tuple(
        DumpedLayer(layer["name"], layer["type"], tuple(layer["bottoms"]), tuple(layer["tops"]))
        for layer in recorded_run["built"]["layers"]
    )
    arrays: dict[str, Any] = {}
    for member, array in np.load(GOLDEN / f"{name}.npz").items():
        kind, _, array_name = member.partition("/")
        arrays["loss" if kind == "total_loss" else f"{KINDS_BY_PREFIX.get(kind, kind)}/{array_name}"] = array
    net = Net(
        GOLDEN / f"{name}.prototxt", recorded_run["phase"], level=recorded_run["level"], stages=recorded_run["stages"]
    )
    return Dump("BVLC Caffe 1.0", name, recorded_run["phase"], layers, arrays), net


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK_NETS else [pytest.mark.long]) for name in RECORDED_NETS]
)
def test_equal_except_where_caffe_is_wrong(name: str) -> None:
    caffe_dump, net = load_recorded(name)
    replayed_dump = replay_dump(caffe_dump, net)
    result = compare_dumps(caffe_dump, replayed_dump, rtol=1e-5)
    assert {(row.layer, row.kind, row.name) for row in result.differences} == WRONG_IN_CAFFE.get(name, set()), str(
        result
    )
    np.testing.assert_allclose(replayed_dump.arrays["loss"], caffe_dump.arrays["loss"], rtol=1e-5)
    layerwise_result = compare_dumps(caffe_dump, replay_dump(caffe_dump, net, isolate_layers=True), rtol=1e-5)
    wrong_diffs = {
        row for row in WRONG_IN_CAFFE.get(name, set()) if row[1] == "diff"
    }  # what follows from it does not part
    assert {(row.layer, row.kind, row.name) for row in layerwise_result.differences} == wrong_diffs, str(
        layerwise_result
    )
    # all that was recorded was compared: its final values, and the diffs and gradients that are not zero
    compared_arrays = {(row.kind, row.name) for row in result.rows if row.distance is not None}
    assert {blob for kind, blob in compared_arrays if kind == "top"} == {
        k[5:] for k in caffe_dump.arrays if k.startswith("blob/")
    }
    gradients = {f"grad/{row.layer}/{row.name}" for row in result.rows if row.kind == "grad" and row.distance}
    assert gradients >= {k for k in caffe_dump.arrays if k.startswith("grad/")}
