"""Every attribute through which a script can write to nets, layers and solvers: the write is used, or an error."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import caffejax.pycaffe as caffe
from caffejax import CaffejaxError

from .conftest import Write

NET = """
layer { name: "data" type: "DummyData" top: "x" top: "t"
  dummy_data_param { shape { dim: 1 dim: 2 } shape { dim: 1 dim: 1 }
  data_filler { type: "constant" value: 1 } data_filler { type: "constant" value: 2 } } }
layer { name: "fc" type: "InnerProduct" bottom: "x" top: "fc" inner_product_param { num_output: 1 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "fc" bottom: "t" top: "loss" }
"""

# each attribute of the public interface, "refused" where an assignment is an error, "kept" where scripts may store a
# value that only they read
NET_ATTRIBUTES = {
    **dict.fromkeys(
        """blobs params layers layer_dict inputs outputs bottom_names top_names blob_loss_weights _blobs _blob_names
        _layer_names _layer_blobs _inputs _outputs _blob_loss_weights""".split(),
        "refused",
    ),
    "name": "kept",
}
BLOB_ATTRIBUTES = dict.fromkeys("data diff shape count num channels height width".split(), "refused")
LAYER_ATTRIBUTES = dict.fromkeys("blobs type phase param_str".split(), "refused")
SOLVER_ATTRIBUTES = dict.fromkeys("net test_nets iter lr param max_iter type".split(), "refused")
INTERNAL_ATTRIBUTES = {  # parts of the implementation, which are not Caffe's
    "Net": {"_executor", "_batch_size"},
    "SyncedBlob": {"data_memory", "diff_memory", "is_shared", "_shape", "_arrays", "_memory_owner"},
    "NetLayer": {"_type"},
    "SGDSolver": {"_type", "_param", "_first_param", "_trainer", "_updater"},
}


@pytest.fixture(scope="module")
def solver(tmp_path_factory: pytest.TempPathFactory) -> Any:
    caffe.set_logging(False)
    folder = tmp_path_factory.mktemp("writes")
    (folder / "net.prototxt").write_text(NET)
    (folder / "solver.prototxt").write_text(
        f'net: "{folder}/net.prototxt" base_lr: 0.1 lr_policy: "fixed" momentum: 0.9 iter_size: 1 test_iter: 1 '
        f'test_interval: 100 average_loss: 1 display: 0 snapshot: 0 max_iter: 10 snapshot_prefix: "{folder}/s"'
    )
    return caffe.SGDSolver(str(folder / "solver.prototxt"))


def list_attributes(item: Any) -> set[str]:
    """Return the names of an object's attributes that are not methods."""
    names = {name for name in dir(item) if not name.startswith("__")}
    return {name for name in names if not callable(getattr(item, name))}


def get_items(solver: Any) -> list[tuple[Any, dict[str, str]]]:
    net = solver.net
    return [
        (net, NET_ATTRIBUTES),
        (net.blobs["fc"], BLOB_ATTRIBUTES),
        (net.params["fc"][0], BLOB_ATTRIBUTES),
        (net.layers[1], LAYER_ATTRIBUTES),
        (solver, SOLVER_ATTRIBUTES),
    ]


def test_each_attribute_is_classified(solver: Any) -> None:
    """A new attribute has to be added here, with a test of a write to it."""
    for item, attributes in get_items(solver):
        assert list_attributes(item) == attributes.keys() | INTERNAL_ATTRIBUTES[type(item).__name__], type(item)


def test_an_assignment_without_effect_is_an_error(solver: Any) -> None:
    for item, attributes in get_items(solver):
        for name, use in attributes.items():
            value = getattr(item, name)
            if use == "kept":
                setattr(item, name, "mine")
                assert getattr(item, name) == "mine"
                continue
            if isinstance(value, np.ndarray | list):
                value = value.copy()
            with pytest.raises(AttributeError, match=rf"\b{name}\b") as error:
                setattr(item, name, value)
            assert isinstance(error.value, CaffejaxError), name
    solver.mine = solver.net.mine = 1  # scripts may store things of their own
    caffe.Blob(1).mine = 1


CHANGES: list[tuple[str, Callable[[Any], object]]] = [
    ("blobs", lambda net: net.blobs.__setitem__("x", np.zeros((1, 2)))),
    ("blobs", lambda net: net.blobs.update(x=np.zeros((1, 2)))),
    ("blobs", lambda net: net.blobs.pop("x")),
    ("blobs", lambda net: net.blobs.__delitem__("x")),
    ("blobs", lambda net: net.blobs.clear()),
    ("params", lambda net: net.params.__setitem__("fc", [])),
    ("params", lambda net: net.params.setdefault("new", [])),
    ("params", lambda net: net.params.popitem()),
    ("params", lambda net: net.params.move_to_end("fc")),
    ("layers", lambda net: net.layers.__setitem__(1, net.layers[0])),
    ("layers", lambda net: net.layers.append(net.layers[0])),
    ("layers", lambda net: net.layers.__delitem__(0)),
    ("layer_dict", lambda net: net.layer_dict.__setitem__("fc", net.layers[0])),
    ("_blobs", lambda net: net._blobs.reverse()),
    ("_layer_names", lambda net: net._layer_names.sort()),
    ("_blob_names", lambda net: net._blob_names.remove("x")),
    ("top_names", lambda net: net.top_names.__setitem__("fc", ["y"])),
    ("top_names", lambda net: net.top_names["fc"].append("y")),
    ("bottom_names", lambda net: net.bottom_names["fc"].__setitem__(0, "y")),
    ("_inputs", lambda net: net._inputs.extend([1])),
    ("blob_loss_weights", lambda net: net.blob_loss_weights.__setitem__("loss", 2)),
    ("_blob_loss_weights", lambda net: net._blob_loss_weights.__setitem__(0, 2)),
    ("_outputs", lambda net: net._outputs.insert(0, 1)),
]


@pytest.mark.parametrize(("name", "change"), CHANGES)
def test_a_change_of_a_list_or_dict_without_effect_is_an_error(
    solver: Any, name: str, change: Callable[[Any], object]
) -> None:
    net = solver.net
    items = list(getattr(net, name))
    with pytest.raises(CaffejaxError, match=rf"net\.{name}"):
        change(net)
    assert list(getattr(net, name)) == items


def test_augmented_assignments_are_used() -> None:
    """They change the object, and then assign it to where it was."""
    net = caffe.Net(NET, caffe.TEST)
    net.params["fc"][0].data[...] = 1
    net.params["fc"][0].data += 1
    net.params["fc"][0].diff -= 2
    assert (net.params["fc"][0].data == 2).all()
    assert (net.params["fc"][0].diff == -2).all()
    net.params["fc"] += [caffe.Blob(3)]
    net.layers[1].blobs += [caffe.Blob(4)]
    assert [blob.shape for blob in net.params["fc"]] == [(1, 2), (1,), (3,), (4,)]
    net.forward()
    net.outputs += ["fc"]
    assert net.forward().keys() == {"loss", "fc"}


def test_lists_and_dicts_behave_as_such(solver: Any) -> None:
    net = solver.net
    assert net.top_names["data"] + ["more"] == ["x", "t", "more"]
    assert net.layers[0:2] == list(net.layers)[:2]
    copied = net.blobs.copy()
    copied["new"] = 1
    assert dict(net.blobs) == dict(net.blobs.items())
    assert list(copied) == [*net.blobs, "new"]
    names = net._layer_names.copy()
    names.append("new")
    with pytest.raises(CaffejaxError, match="test_nets"):
        solver.test_nets.append(net)


def test_outputs_of_scripts_are_returned(solver: Any) -> None:
    """The lists of inputs and outputs are read in each pass, as in Caffe."""
    net = solver.net
    net.outputs.append("fc")
    try:
        assert net.forward().keys() == {"loss", "fc"}
    finally:
        net.outputs.remove("fc")


def test_writes_of_callbacks_are_used_at_once() -> None:
    """Caffe calls them immediately before each layer's pass, in either direction."""
    net = caffe.Net(
        """
        force_backward: true
        layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 } } }
        layer { name: "a" type: "Scale" bottom: "x" top: "a" scale_param { axis: 0 filler { value: 2 } } }
        layer { name: "b" type: "Scale" bottom: "a" top: "b" scale_param { axis: 0 filler { value: 3 } } }
        """,
        caffe.TEST,
    )
    net.blobs["x"].data[...] = 1
    changes: dict[int, Callable[[], object]] = {}
    net.before_forward(lambda i: changes.get(i, lambda: None)())
    net.before_backward(lambda i: changes.get(i, lambda: None)())
    blob = caffe.Blob(1)
    blob.data[...] = 5
    changes[2] = lambda: net.params["b"].__setitem__(0, blob)
    assert net.forward()["b"] == 10
    net.blobs["b"].diff[...] = 1
    changes[2] = lambda: net.params["b"][0].data.fill(7)
    changes[1] = lambda: net.params["a"][0].data.fill(4)
    assert net.backward()["x"] == 28


def test_each_setting_of_a_solver_is_used_or_an_error(solver: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Caffe's interface can set base_lr, which its solver reads in each iteration."""
    weight = solver.net.params["fc"][0]
    weight.data[...], solver.net.params["fc"][1].data[...] = 0, 0
    solver.param.base_lr = 0.25
    assert solver.lr == 0.25
    solver.step(1)
    np.testing.assert_allclose(weight.data, [[0.5, 0.5]])  # the gradient is (0 - 2) x = -2
    solver.param.max_iter, solver.param.display, solver.param.average_loss = solver.iter + 1, 1, 2
    assert solver.max_iter == solver.iter + 1
    solver.param.snapshot_after_train  # noqa: B018  a read is no write
    for field, value in (("momentum", 0.5), ("type", "Adam"), ("iter_size", 2), ("snapshot_prefix", "other")):
        old_value = getattr(solver.param, field)
        setattr(solver.param, field, value)
        for call in (lambda: solver.step(1), solver.solve, solver.apply_update):
            with pytest.raises(CaffejaxError, match=rf"param\.{field}"):
                call()
        setattr(solver.param, field, old_value)
    solver.param.test_iter.append(3)
    with pytest.raises(CaffejaxError, match=r"param\.test_iter"):
        solver.step(1)
    solver.param.test_iter.pop()


def test_a_changed_base_lr_is_used_by_each_policy(write: Write) -> None:
    from caffejax.core.solver.lr_schedules import POLICIES, rate_schedule

    settings = {"gamma": 0.5, "stepsize": 2, "power": 2, "max_iter": 10, "stepearly": 1}
    for policy in POLICIES:
        param = caffe.proto.caffe_pb2.SolverParameter(base_lr=1, lr_policy=policy, **settings)
        if policy == "multifixed":
            continue  # it has stagelr instead of base_lr
        rates = rate_schedule(param)
        first_rate = rates(1)
        param.base_lr = 3
        assert rates(1) == pytest.approx(3 * first_rate), policy


def test_a_python_data_layer_may_change_its_batch_in_each_step(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log names each new shape, which compiles.

    The branches to Accuracy and to a layer without propagate_down have no backward pass; Caffe trains.
    """
    write(
        "rows_of_varying_number.py",
        """
import caffe
class Rows(caffe.Layer):
    sizes = [4, 5, 2, 2, 6, 1]
    def setup(self, bottom, top):
        self.i = 0
    def reshape(self, bottom, top):
        n = self.sizes[self.i % 6]
        top[0].reshape(n, 3)
        top[1].reshape(n)
    def forward(self, bottom, top):
        top[0].data[...] = 1
        top[1].data[...] = 1
        self.i += 1
""",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    net = write(
        "rows.prototxt",
        """
        layer { name: "data" type: "Python" top: "x" top: "label"
          python_param { module: "rows_of_varying_number" layer: "Rows" } }
        layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 2 } }
        layer { name: "acc" type: "Accuracy" bottom: "ip" bottom: "label" top: "acc" }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
        layer { name: "no_diff" type: "Power" bottom: "ip" top: "no_diff" propagate_down: false }
        layer { name: "rows" type: "Reduction" bottom: "no_diff" top: "rows" loss_weight: 1
          reduction_param { axis: 1 } }
        """,
    )
    caffe.set_logging(True)
    solver = caffe.SGDSolver(write("rows_solver.prototxt", f'net: "{net}" base_lr: 1 lr_policy: "fixed"'))
    biases = np.zeros(2)
    for _ in range(6):
        solver.step(1)
        # all rows are equal: x = (1, 1, 1), so the logits of both classes are 4 b, and the gradient of b is p - (0, 1)
        p = np.exp(4 * biases) / np.exp(4 * biases).sum()
        biases -= p - [0, 1]
        np.testing.assert_allclose(solver.net.params["ip"][1].data, biases, rtol=1e-5)
        assert solver.net.blobs["ip"].diff.shape == solver.net.blobs["ip"].shape
    log = [line for line in capsys.readouterr().err.splitlines() if "Compiling" in line]
    expected = [f"x ({n}, 3), label ({n},) ({i} shapes so far)" for i, n in enumerate((5, 2, 6, 1), 2)]
    assert [line.partition("Compiling for ")[2] for line in log] == expected
