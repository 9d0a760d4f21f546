"""Diffs of the params of Python layers: in passes by hand as in Caffe, in a solver the sum of the passes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import caffejax
import caffejax.pycaffe as caffe

MODULE = """
import caffe
class Base(caffe.Layer):
    def setup(self, bottom, top):
        self.blobs.add_blob(1)
        self.seen = []
    def reshape(self, bottom, top): top[0].reshape(1)
    def forward(self, bottom, top): top[0].data[...] = self.blobs[0].data * bottom[0].data
    def backward(self, top, propagate_down, bottom):
        self.seen.append(float(self.blobs[0].diff[0]))
        self.write(self.blobs[0], float(top[0].diff[0] * bottom[0].data[0]))
class Assign(Base):
    def write(self, blob, diff): blob.diff[...] = diff
class Add(Base):
    def write(self, blob, diff): blob.diff[...] += diff
class Nothing(Base):
    def write(self, blob, diff): pass
"""
NET = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 } } }
layer { name: "py" type: "Python" bottom: "x" top: "y" PARAM
  python_param { module: "diff_layers" layer: "CLASS" } loss_weight: 1 }
"""
SOLVER = """
net: "net.prototxt" base_lr: 1 lr_policy: "fixed" max_iter: 3 iter_size: 2 snapshot_prefix: "s"
snapshot_after_train: false
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "diff_layers.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def make_net(name: str, param: str = "") -> Any:
    return caffe.Net(NET.replace("CLASS", name).replace("PARAM", param), caffe.TRAIN)


@pytest.mark.parametrize(
    ("name", "diffs"),
    [("Assign", [1, 2, 3, 3]), ("Add", [1, 3, 6, 3]), ("Nothing", [0, 0, 0, 0])],  # as BVLC Caffe's
)
@pytest.mark.parametrize("param", ["", "param { lr_mult: 2 }", 'param { name: "w" }'])
def test_passes_by_hand(name: str, diffs: list[int], param: str) -> None:
    """The layer sees the diff so far, which `=` replaces and `+=` increases. The last pass follows a clearing."""
    net = make_net(name, param)
    blob = net.params["py"][0]
    results = []
    for i, x in enumerate((1, 2, 3, 3)):
        if i == 3:
            net.clear_param_diffs()
        net.forward(x=np.array([x]))
        net.backward()
        results.append(blob.diff.item())
    assert results == diffs
    assert net.layers[1].seen == [0, *diffs[:2], 0]
    if name == "Add":
        blob.diff[...] = 100
        net.backward()
        assert blob.diff.item() == 103
        large = np.float32(2**24)  # the sum is exact: the difference to the previous diff is not what is stored
        blob.diff[...] = large
        net.backward()
        assert blob.diff.item() == large + np.float32(3)


@pytest.mark.parametrize("name", ["Assign", "Add"])
def test_passes_of_a_solver_are_averaged(name: str, tmp_path: Path) -> None:
    """Both passes of an iteration count, for `=` as for `+=`, in Caffe's interface and in `caffejax.Solver`."""
    (tmp_path / "net.prototxt").write_text(NET.replace("CLASS", name).replace("PARAM", ""))
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    solver = caffe.SGDSolver("solver.prototxt")
    inputs = iter([1, 3, 5, 7])

    def write_next(_: int) -> None:
        solver.net.blobs["x"].data[...] = next(inputs)

    solver.net.before_forward(lambda i: write_next(i) if i == 0 else None)
    solver.step(2)
    assert solver.net.params["py"][0].data.item() == -(1 + 3 + 5 + 7) / 2
    assert solver.net.layers[1].seen == [0, 0, 0, 0]
    other = caffejax.Solver("solver.prototxt", data=[{"x": np.array([x], np.float32)} for x in (1, 3, 5, 7)])
    other.step(2)
    other.close()
    assert other.variables.params["py"]["0"].item() == -8


def test_a_param_shared_with_another_layer() -> None:
    """The layer above has added its diff before the Python layer sees it."""
    scale = 'layer { name: "s" type: "Scale" bottom: "y" top: "z" param { name: "w" } scale_param { axis: 0 } '
    text = NET.replace("CLASS", "Add").replace("PARAM", 'param { name: "w" }').replace("loss_weight: 1", "")
    text += scale + "loss_weight: 1 }"
    net = caffe.Net(text, caffe.TRAIN)
    net.params["py"][0].data[...] = 2
    net.forward(x=np.array([3]))
    net.backward()  # z = w w x: 2 w x = 12, of which 6 come from each layer
    assert net.layers[1].seen == [6]
    assert net.params["py"][0].diff.item() == 12
