"""Solvers on nets with Python layers: data sources, losses, blobs, checkpoints."""

import logging
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import user_layers
from python_nets import input_layer, python_layer

import caffejax.pycaffe as caffe
from caffejax import Net, Solver, read_caffemodel
from caffejax.errors import CaffejaxError

pytestmark = pytest.mark.slow

FILLED = """layer { name: "data" type: "DummyData" top: "data" top: "target" dummy_data_param {
  shape { dim: 8 dim: 5 } shape { dim: 8 dim: 3 } data_filler { type: "gaussian" } data_filler { type: "gaussian" } } }
layer { name: "hidden" type: "InnerProduct" bottom: "data" top: "hidden" inner_product_param { num_output: 6
  weight_filler { type: "xavier" } } }
layer { name: "tanh" type: "TanH" bottom: "hidden" top: "hidden" }
"""
LINEAR = python_layer("ip", "Linear", "hidden", "ip", "param { lr_mult: 2 } param { lr_mult: 1 }", "{'num_output': 3}")
INNER_PRODUCT = """layer { name: "ip" type: "InnerProduct" bottom: "hidden" top: "ip"
  param { lr_mult: 2 } param { lr_mult: 1 } inner_product_param { num_output: 3 } }
"""
PYTHON_LOSS = python_layer("loss", "Euclidean", "ip target", "loss", "loss_weight: 1")
EUCLIDEAN = 'layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "target" top: "loss" }'


def solver(folder: Path, net: str, settings: str = "", **options: Any) -> Solver:
    return Solver(
        f'net_param {{ {net} }} base_lr: 0.05 lr_policy: "fixed" momentum: 0.9 random_seed: 3 max_iter: 20 '
        f'snapshot_prefix: "{folder / "x"}" {settings}',
        **options,
    )


def train(folder: Path, net: str, settings: str = "", **options: Any) -> Any:
    s = solver(folder, net, settings, **options)
    start = Net(FILLED + LINEAR, "TRAIN").init(jax.random.key(0)).params["ip"]  # the built-in layer starts with zeros
    s.train_state = s.train_state.replace(params={**s.train_state.params, "ip": start})  # type: ignore[attr-defined]
    s.step(20)
    s.close()
    return s.train_state.params


@pytest.mark.parametrize(("backward", "settings"), [("autodiff", "iter_size: 2"), ("rules", "")])
def test_the_same_net_of_built_in_layers_learns_the_same(tmp_path: Path, settings: str, backward: Any) -> None:
    expected = train(tmp_path, FILLED + INNER_PRODUCT + EUCLIDEAN, settings)
    result = train(tmp_path, FILLED + LINEAR + PYTHON_LOSS, settings, backward=backward)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), result, expected)


def leaves(s: Solver) -> list[Any]:
    return jax.tree.leaves((s.train_state.params, s.train_state.opt_state))


@pytest.mark.parametrize("snapshot", ["x.orbax", "x_iter_5.solverstate"])
def test_resumes_with_a_layer_s_own_blobs(tmp_path: Path, snapshot: str) -> None:
    uninterrupted = solver(tmp_path, FILLED + LINEAR + PYTHON_LOSS)
    uninterrupted.step(5)
    uninterrupted.snapshot()
    uninterrupted.step(5)
    resumed = solver(tmp_path, FILLED + LINEAR + PYTHON_LOSS)
    resumed.restore(tmp_path / snapshot)
    resumed.step(5)
    for ours, theirs in zip(leaves(resumed), leaves(uninterrupted), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    uninterrupted.close()
    resumed.close()


def test_a_caffemodel_has_the_blobs_and_gives_them_back(tmp_path: Path) -> None:
    s = solver(tmp_path, FILLED + LINEAR + PYTHON_LOSS)
    s.step(3)
    s.snapshot()
    stored = read_caffemodel(tmp_path / "x_iter_3.caffemodel")
    for ours, theirs in zip(s.train_state.params["ip"].values(), stored["ip"], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    fine_tuned = solver(tmp_path, FILLED + LINEAR + PYTHON_LOSS, weights=[tmp_path / "x_iter_3.caffemodel"])
    np.testing.assert_array_equal(fine_tuned.train_state.params["ip"][0], s.train_state.params["ip"][0])
    for either in (s, fine_tuned):
        either.close()


CONVOLUTION = """layer { name: "conv" type: "Convolution" bottom: "image" top: "score" convolution_param { num_output: 2
  kernel_size: 3 pad: 1 weight_filler { type: "gaussian" std: 0.3 } } }
"""
PIXEL_LOSS = """layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "label" top: "loss" }
"""
ACCURACY = python_layer("acc", "Score", "score label", "acc", "include { phase: TEST }")


def images(kind: str) -> str:
    """Data layers of the TRAIN and TEST net."""
    return "".join(
        python_layer(f"data{seed}", kind, "", "image label", f"include {{ phase: {phase} }}", f"{{'seed': {seed}}}")
        for seed, phase in ((1, "TRAIN"), (2, "TEST"))
    )


def test_loading_weights_reaches_the_blobs_of_the_layer_s_object(tmp_path: Path) -> None:
    """In Caffe they are the net's own; here too they hold what was loaded, whatever was written to them before."""
    layer = python_layer("lin", "Linear", "x0", "y", param_str="{'num_output': 2}")
    net = caffe.Net(input_layer((2, 3)) + layer, caffe.TEST)
    net.params["lin"][0].data[...] = 5
    net.save(str(tmp_path / "w.caffemodel"))
    blobs = net.layer_dict["lin"].blobs
    for blob in (*blobs, *net.params["lin"]):
        blob.data[...] = 9
    net.copy_from(str(tmp_path / "w.caffemodel"))
    assert [blob.data.tolist() for blob in blobs] == [[[5] * 3] * 2, [0] * 2]
    assert [blob.data.tolist() for blob in net.params["lin"]] == [[[5] * 3] * 2, [0] * 2]
    net.blobs["x0"].data[...] = 1
    assert (net.forward()["y"] == 15).all()


def test_images_of_many_sizes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Segmentation: shapes change with every iteration, in the net that is trained and the one that is tested."""
    test = 'test_iter: 6 test_interval: 10 test_initialization: false type: "Adam" momentum2: 0.99'
    with caplog.at_level(logging.INFO, logger="caffejax"):
        s = solver(tmp_path, images("Images") + CONVOLUTION + PIXEL_LOSS + ACCURACY, test)
        assert not s.net.has_host_layers  # data comes from outside of what is compiled
        before = s.test()[0]
        s.step(40)
        after = s.test()[0]
    assert after.loss < before.loss / 2
    assert after.outputs["acc"] > before.outputs["acc"]
    messages = [r.getMessage() for r in caplog.records]
    compiled = [m for m in messages if m.startswith("Compiling")]
    assert "Compiling for image (1, 3, 8, 4), label (1, 1, 8, 4) (2 shapes so far)" in compiled
    assert len(compiled) == 2 * 2  # in each net
    warnings = [m for m in messages if "get_state" in m]
    assert warnings == [
        f"Layer 'data{i}' (Python) has no get_state and set_state: checkpoints do not store its position in the data"
        for i in (1, 2)
    ]
    s.close()


@pytest.mark.parametrize("host", [False, True])
def test_gradients_over_images_of_many_sizes_are_accumulated(tmp_path: Path, host: bool) -> None:
    body = images("Images") + CONVOLUTION + PIXEL_LOSS
    if host:  # one more Python layer, so that the step is not compiled as a whole
        ten = python_layer("ten", "SimpleLayer", "score", "ten")
        body = images("Images") + CONVOLUTION + ten + PIXEL_LOSS.replace('"score"', '"ten"')
    s = solver(tmp_path, body, "iter_size: 3")
    assert s.net.has_host_layers is host
    params, state = s.variables
    (source,) = Net(images("Images"), "TRAIN").sources().values()
    batches = [dict(zip(("image", "label"), next(source), strict=True)) for _ in range(3)]
    grads = [jax.grad(s.net.loss, has_aux=True)(params, state, batch)[0] for batch in batches]
    expected = jax.tree.map(lambda p, *gs: p - 0.05 * sum(gs) / 3, params, *grads)
    s.step(1)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), s.train_state.params, expected)
    s.close()


@pytest.mark.parametrize("snapshot", ["x.orbax", "x_iter_5.solverstate"])
def test_a_data_layer_s_iterator_state_is_part_of_checkpoints(tmp_path: Path, snapshot: str) -> None:
    body = images("PlacedImages") + CONVOLUTION + PIXEL_LOSS + ACCURACY
    test = "test_iter: 2 test_interval: 4"
    uninterrupted = solver(tmp_path, body, test)
    uninterrupted.step(5)
    uninterrupted.snapshot()
    uninterrupted.step(7)
    resumed = solver(tmp_path, body, test)
    resumed.restore(tmp_path / snapshot)
    resumed.step(7)
    assert resumed.loader.get_state() == uninterrupted.loader.get_state() == {"data1": {"index": 12}}
    assert resumed.tests.get_state() == uninterrupted.tests.get_state()
    for ours, theirs in zip(leaves(resumed), leaves(uninterrupted), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    uninterrupted.close()
    resumed.close()


def test_a_position_that_is_not_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_layers.PlacedImages, "get_state", lambda self: {"x": np.zeros(3)})
    with pytest.raises(CaffejaxError, match=r"PlacedImages.get_state must return plain values that JSON supports"):
        solver(tmp_path, images("PlacedImages") + CONVOLUTION + PIXEL_LOSS)


REGIONS = (
    python_layer("input", "Regions", "", "data rois labels", param_str="{'num_classes': 3}")
    + """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3
  weight_filler { type: "xavier" } } }
layer { name: "silence" type: "Silence" bottom: "conv" }
%s
layer { name: "cls" type: "InnerProduct" bottom: "ten" top: "cls" inner_product_param { num_output: 3
  weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "cls" bottom: "labels" top: "loss" }
"""
)


def test_regions_that_are_more_or_fewer_each_time(tmp_path: Path) -> None:
    """Detection: the same with a Python layer among those that see them as with a built-in one."""
    tens = (
        'layer { name: "ten" type: "Power" bottom: "rois" top: "ten" power_param { scale: 10 } }',
        python_layer("ten", "SimpleLayer", "rois", "ten"),
    )
    params = []
    for ten in tens:
        s = solver(tmp_path, REGIONS % ten)
        assert s.net.has_host_layers is ("Python" in ten)
        assert s.net.graph.blobs["cls"].shape == (1, 3)
        s.step(6)
        params.append(s.train_state.params)
        s.close()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *params)


def test_debug_info_and_debug_nans_see_the_batch_of_the_step(tmp_path: Path, caplog: Any) -> None:
    """Neither reads more data than training does."""
    body = images("PlacedImages") + python_layer("ten", "SimpleLayer", "image", "image") + CONVOLUTION + PIXEL_LOSS
    s = solver(tmp_path, body, "debug_info: true display: 1", debug_nans=True)
    with caplog.at_level(logging.INFO, logger="caffejax"):
        s.step(3)
    assert s.loader.get_state() == {"data1": {"index": 3}}
    assert sum("[Forward] Layer data1, top blob image" in r.getMessage() for r in caplog.records) == 3
    s.close()
