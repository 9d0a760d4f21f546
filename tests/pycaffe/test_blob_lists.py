"""The lists of layers' blobs: passes, training and weight files use the blobs that scripts put into them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import caffejax.pycaffe as caffe
from caffejax import CaffejaxError, read_caffemodel
from caffejax.core.layers.python.layer import BlobVec

from .conftest import Write

NET = """
force_backward: true
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "fc" type: "InnerProduct" bottom: "x" top: "fc" inner_product_param { num_output: 2 } }
"""
SHARING_NET = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" }
  inner_product_param { num_output: 2 bias_term: false } }
layer { name: "b" type: "InnerProduct" bottom: "a" top: "b" param { name: "w" }
  inner_product_param { num_output: 2 bias_term: false } }
"""
SOLVER_NET = """
layer { name: "x" type: "DummyData" top: "x" dummy_data_param { shape { dim: 1 dim: 2 }
  data_filler { type: "constant" value: 1 } } }
layer { name: "fc" type: "InnerProduct" bottom: "x" top: "fc" inner_product_param { num_output: 1 bias_term: false } }
layer { name: "loss" type: "Reduction" bottom: "fc" top: "loss" loss_weight: 1 }
"""


@pytest.fixture(scope="module")
def nets() -> tuple[Any, Any]:
    caffe.set_logging(False)
    return caffe.Net(NET, caffe.TEST), caffe.Net(NET, caffe.TEST)


@pytest.fixture
def net(nets: tuple[Any, Any]) -> Any:
    """A net whose list holds its first blobs, with weights of 0."""
    return _restore(nets[0])


@pytest.fixture
def donor(nets: tuple[Any, Any]) -> Any:
    """A second net, with weights of 2 and biases of 1."""
    donor = _restore(nets[1])
    donor.params["fc"][0].data[...] = 2
    donor.params["fc"][1].data[...] = 1
    return donor


def _restore(net: Any) -> Any:
    net.params["fc"][:] = [caffe.Blob(2, 3), caffe.Blob(2)]
    net.blobs["x"].data[...] = 1
    return net


def read_blobs(path: Path) -> list[np.ndarray]:
    """Return the blobs of the layer `fc` in a weight file."""
    return [np.asarray(blob) for blob in read_caffemodel(path)["fc"]]


def replace_by_index(list_: Any, new: Any) -> None:
    for j in range(2):
        list_[j] = new[j]


def replace_by_slice(list_: Any, new: Any) -> None:
    list_[:] = new


def replace_by_negative_index(list_: Any, new: Any) -> None:
    list_[-2], list_[-1] = new


def delete_and_append(list_: Any, new: Any) -> None:
    del list_[0], list_[0]
    for blob in new:
        list_.append(blob)


def delete_slice_and_extend(list_: Any, new: Any) -> None:
    del list_[:]
    list_.extend(new)


def clear_and_add(list_: Any, new: Any) -> None:
    list_.clear()
    list_ += new


def insert_and_pop(list_: Any, new: Any) -> None:
    list_.insert(0, new[1])
    list_.insert(0, new[0])
    list_.pop()
    list_.pop(2)


def swap_back(list_: Any, new: Any) -> None:
    list_[:] = [new[1], new[0]]
    list_.reverse()


def write_to_added_blobs(list_: Any, new: Any) -> None:
    list_.clear()
    list_.add_blob(2, 3)
    list_.add_blob(2)
    for blob, source in zip(list_, new, strict=True):
        blob.data[...] = source.data


CHANGES: list[Callable[[Any, Any], None]] = [
    replace_by_index,
    replace_by_slice,
    replace_by_negative_index,
    delete_and_append,
    delete_slice_and_extend,
    clear_and_add,
    insert_and_pop,
    swap_back,
    write_to_added_blobs,
]


@pytest.mark.parametrize("kind", ["of another net", "without a net"])
@pytest.mark.parametrize("change", CHANGES)
def test_everything_uses_the_blobs_in_the_list(
    net: Any, donor: Any, change: Callable[[Any, Any], None], kind: str, tmp_path: Path
) -> None:
    """In Caffe, the net of the issue of the projects gives 7 for inputs of 1, weights of 2 and biases of 1."""
    net.forward()  # the lists are changed after a pass
    blobs = list(donor.params["fc"])
    if kind == "without a net":
        blobs = [caffe.Blob(2, 3), caffe.Blob(2)]
        blobs[0].data[...], blobs[1].data[...] = 2, 1
    change(net.layers[1].blobs, blobs)
    assert net.params["fc"] is net.layers[1].blobs
    assert (net.forward()["fc"] == 7).all()
    net.blobs["fc"].diff[...] = 1
    net.clear_param_diffs()
    assert (net.backward()["x"] == 4).all()
    for blob, diff in zip(net.params["fc"], (2, 2), strict=True):
        assert (blob.diff == diff).all()
    net.save(tmp_path / "w.caffemodel")
    net.save_hdf5(tmp_path / "w.caffemodel.h5")
    for file in ("w.caffemodel", "w.caffemodel.h5"):
        weights, biases = read_blobs(tmp_path / file)
        assert (weights == 2).all()
        assert (biases == 1).all()
    net.params["fc"][0].data[...] = 3
    assert (net.forward()["fc"] == 10).all()
    if change is not write_to_added_blobs:
        assert (blobs[0].data == 3).all()  # it is the same blob, as in Caffe
        blobs[0].data[...] = 4
        assert (net.forward()["fc"] == 13).all()
    net.copy_from(tmp_path / "w.caffemodel")
    assert (net.forward()["fc"] == 7).all()


def test_a_backward_pass_uses_a_blob_that_was_replaced_after_the_forward_pass(net: Any, donor: Any) -> None:
    net.forward()
    net.params["fc"][0] = donor.params["fc"][0]
    net.blobs["fc"].diff[...] = 1
    assert (net.backward()["x"] == 4).all()


def test_files_have_reshaped_and_added_blobs(net: Any, donor: Any, tmp_path: Path) -> None:
    """`Net::ToProto` of Caffe writes each blob in its own shape, and as many as the layer has."""
    net.params["fc"][0].data[...] = np.arange(6).reshape(2, 3)
    net.params["fc"][0].reshape(2, 3, 1, 1)
    net.params["fc"].add_blob(4)
    net.params["fc"][2].data[...] = 5
    np.testing.assert_array_equal(net.forward()["fc"], [[3, 12]] * 2)
    paths = [tmp_path / "w.caffemodel", tmp_path / "w.caffemodel.h5"]
    net.save(paths[0])
    net.save_to_hdf5(paths[1], True)
    for path in paths:
        assert [blob.shape for blob in read_blobs(path)] == [(2, 3, 1, 1), (2,), (4,)]
        assert (read_blobs(path)[2] == 5).all()
    message = caffe.proto.caffe_pb2.NetParameter.FromString(paths[0].read_bytes())
    assert [list(blob.shape.dim) for blob in message.layer[1].blobs] == [[2, 3, 1, 1], [2], [4]]
    net.params["fc"][2].data[...] = 0
    net.copy_from(paths[0])  # the list of the net and that of the file have the same blobs
    assert (net.params["fc"][2].data == 5).all()
    with pytest.raises(CaffejaxError, match="fc"):
        donor.copy_from(paths[0])


def test_a_blob_that_was_made_smaller_is_saved_but_not_used(net: Any, tmp_path: Path) -> None:
    """This is pruning: Caffe saves the blobs, and a net with num_output 1 loads them."""
    net.params["fc"][0].data[...] = 1
    net.params["fc"][0].reshape(1, 3)
    net.params["fc"][1].reshape(1)
    net.save(tmp_path / "pruned.caffemodel")
    smaller_net = caffe.Net(
        NET.replace("num_output: 2", "num_output: 1"), caffe.TEST, weights=tmp_path / "pruned.caffemodel"
    )
    smaller_net.blobs["x"].data[...] = 1
    assert (smaller_net.forward()["fc"] == 3).all()
    for call in (net.forward, net.backward):
        with pytest.raises(CaffejaxError, match=r"layer 'fc'.*blob 0 has shape \(1, 3\).*needs \(2, 3\)"):
            call()


def test_lists_that_do_not_fit_are_errors(net: Any) -> None:
    net.params["fc"].pop()
    with pytest.raises(CaffejaxError, match=r"layer 'fc'.*needs 2 blobs.*has 1"):
        net.forward()
    _restore(net).params["fc"][0] = net.blobs["x"]
    with pytest.raises(CaffejaxError, match=r"(?s)layer 'fc'.*the net computes"):
        net.forward()
    _restore(net).params["fc"].reverse()
    with pytest.raises(CaffejaxError, match=r"(?s)layer 'fc'.*shape \(2,\).*shape \(2, 3\)"):
        net.forward()


@pytest.mark.parametrize(
    ("change", "expected_class"),
    [
        (lambda blobs: blobs.append(np.zeros(2)), TypeError),
        (lambda blobs: blobs.extend([1.0]), TypeError),
        (lambda blobs: blobs.extend(1.0), TypeError),
        (lambda blobs: blobs.insert(0, None), TypeError),
        (lambda blobs: blobs.__setitem__(0, np.zeros((2, 3))), TypeError),
        (lambda blobs: blobs.__setitem__(slice(None), [np.zeros(2)]), TypeError),
        (lambda blobs: blobs.__setitem__("0", blobs[0]), TypeError),
        (lambda blobs: blobs.__setitem__(5, blobs[0]), IndexError),
        (lambda blobs: blobs[2], IndexError),
        (lambda blobs: blobs[-3], IndexError),
        (lambda blobs: blobs.pop(7), IndexError),
        (lambda blobs: blobs.__delitem__(2), IndexError),
        (lambda blobs: blobs.add_blob(2.5), TypeError),
        (lambda blobs: blobs.add_blob((2, 3)), TypeError),
        (lambda blobs: blobs.add_blob(-1), ValueError),
    ],
)
def test_wrong_items_and_indices_are_errors_at_once(change: Callable[[Any], object], expected_class: type) -> None:
    """The classes are those of Boost's vector_indexing_suite."""
    blobs = BlobVec([caffe.Blob(2, 3), caffe.Blob(2)])
    with pytest.raises(CaffejaxError) as error:
        change(blobs)
    assert isinstance(error.value, expected_class)
    assert [blob.shape for blob in blobs] == [(2, 3), (2,)]


def test_a_blob_without_a_net_stays_the_same_blob(net: Any) -> None:
    blob = caffe.Blob(2, 3)
    held_view = blob.data
    held_view[...] = 1
    net.params["fc"][0] = blob
    assert (net.forward()["fc"] == 3).all()
    blob.data[...] = 2
    assert (net.forward()["fc"] == 6).all()
    blob.reshape(3, 2)
    assert net.params["fc"][0].shape == (3, 2)


def test_layers_that_share_a_param_must_hold_one_blob() -> None:
    net = caffe.Net(SHARING_NET, caffe.TEST)
    net.blobs["x"].data[...] = 1
    new_blob = caffe.Blob(2, 2)
    new_blob.data[...] = 2
    net.params["a"][0] = new_blob
    with pytest.raises(CaffejaxError, match=r"layer 'b'.*shares its blob 0 with layer 'a'"):
        net.forward()
    net.params["b"][0] = new_blob
    assert (net.forward()["b"] == 16).all()
    other = caffe.Net(SHARING_NET, caffe.TEST)
    other.share_with(net)
    other.blobs["x"].data[...] = 1
    assert (other.forward()["b"] == 16).all()
    net.params["b"][0].data[...] = 1
    assert (other.forward()["b"] == 4).all()


def test_a_blob_in_two_lists_gets_both_gradients() -> None:
    net = caffe.Net("force_backward: true\n" + SHARING_NET.replace('param { name: "w" }', ""), caffe.TEST)
    net.params["b"][0] = net.params["a"][0]
    net.params["a"][0].data[...] = 1
    net.blobs["x"].data[...] = 1
    net.blobs["b"].diff[...] = 1
    assert (net.forward()["b"] == 4).all()
    net.backward()
    # dL/dw_ij = sum over paths: from `b`, the diff 1 times a_j = 2; from `a`, the diff sum_k w_ki = 2 times x_j = 1
    assert (net.params["a"][0].diff == 4).all()


def make_solver(write: Write) -> Any:
    net = write("net.prototxt", SOLVER_NET)
    settings = 'base_lr: 1 lr_policy: "fixed" momentum: 0.5 snapshot_prefix: "s" test_iter: 1 test_interval: 100'
    return caffe.SGDSolver(write("solver.prototxt", f'net: "{net}" {settings}'))


def test_solvers_train_save_and_test_the_blobs_in_the_list(write: Write, tmp_path: Path) -> None:
    """With x = (1, 1) and the loss w . x, each step subtracts 1, and the second 1.5 with a momentum of 0.5."""
    solver = make_solver(write)
    blob = caffe.Blob(1, 2)
    solver.step(0)
    solver.net.params["fc"][0] = blob
    solver.step(2)
    np.testing.assert_array_equal(blob.data, [[-2.5, -2.5]])
    assert (blob.diff == 1.5).all()
    solver.param.test_interval = 2
    solver.step(1)  # a test precedes it, which uses the blob
    np.testing.assert_array_equal(blob.data, [[-4.25, -4.25]])
    solver.snapshot()
    assert (read_blobs(tmp_path / "s_iter_3.caffemodel")[0] == -4.25).all()
    blob.data[...] = 0
    solver.restore(str(tmp_path / "s.orbax" / "3"))
    assert (blob.data == -4.25).all()
    solver.net.params["fc"][0].reshape(1, 2, 1, 1)
    solver.step(1)
    np.testing.assert_allclose(blob.data.ravel(), [-6.125, -6.125])
    solver.net.params["fc"].add_blob(1)
    for call in (lambda: solver.step(1), solver.snapshot):
        with pytest.raises(CaffejaxError, match=r"layer 'fc'.*has 1 blobs.*has 2.*remove"):
            call()


def test_python_layers_use_the_blobs_in_their_list(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(
        "scaling_layer_of_lists.py",
        """
import caffe
class Scaling(caffe.Layer):
    def setup(self, bottom, top):
        self.blobs.add_blob(1)
        self.first_blob = self.blobs[0]
    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)
    def forward(self, bottom, top):
        top[0].data[...] = self.blobs[0].data * bottom[0].data
    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = self.blobs[0].data * top[0].diff
        self.blobs[0].diff[...] = (top[0].diff * bottom[0].data).sum()
""",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    net = caffe.Net(
        """
        force_backward: true
        layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 3 } } }
        layer { name: "py" type: "Python" bottom: "x" top: "y"
          python_param { module: "scaling_layer_of_lists" layer: "Scaling" } }
        """,
        caffe.TRAIN,
    )
    layer = net.layers[1]
    assert layer.blobs is net.params["py"]
    net.blobs["x"].data[...] = 1
    layer.first_blob.data[...] = 2
    assert (net.forward()["y"] == 2).all()
    blob = caffe.Blob(1)
    blob.data[...] = 3
    layer.blobs[0] = blob
    assert (net.forward()["y"] == 3).all()
    net.blobs["y"].diff[...] = 1
    net.backward()
    assert (blob.diff == 3).all()
    layer.blobs.add_blob(2)
    net.forward()
    net.backward()
    net.save(tmp_path / "py.caffemodel")
    assert [b.shape for b in read_caffemodel(tmp_path / "py.caffemodel")["py"]] == [(1,), (2,)]
    layer.blobs = BlobVec()
    with pytest.raises(CaffejaxError, match=r"layer 'py'.*different list"):
        net.forward()
