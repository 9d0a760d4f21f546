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
from caffejax.base.errors import CaffejaxError

HIDDEN_NET = """layer { name: "data" type: "DummyData" top: "data" top: "target" dummy_data_param {
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
EUCLIDEAN_LOSS = 'layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "target" top: "loss" }'


def make_solver(folder: Path, net: str, settings: str = "", **options: Any) -> Solver:
    return Solver(
        f'net_param {{ {net} }} base_lr: 0.05 lr_policy: "fixed" momentum: 0.9 random_seed: 3 max_iter: 20 '
        f'snapshot_prefix: "{folder / "x"}" {settings}',
        **options,
    )


def train(folder: Path, net: str, settings: str = "", **options: Any) -> Any:
    s = make_solver(folder, net, settings, **options)
    linear_net = Net(HIDDEN_NET + LINEAR, "TRAIN")
    linear_blobs = linear_net.init(jax.random.key(0)).params["ip"].values()  # the built-in layer starts with zeros
    initial_blobs = dict(zip((p.slot.name for p in s.net.graph.layer("ip").params), linear_blobs, strict=True))
    s.train_state = s.train_state.replace(params={**s.train_state.params, "ip": initial_blobs})  # type: ignore[attr-defined]
    s.step(20)
    s.close()
    return {(p.slot.layer, p.index): p.array(*s.variables) for p in s.net.graph.params}


@pytest.mark.parametrize(("backward", "settings"), [("autodiff", "iter_size: 2"), ("rules", "")])
def test_training_equals_training_with_built_in_layers(tmp_path: Path, settings: str, backward: Any) -> None:
    expected = train(tmp_path, HIDDEN_NET + INNER_PRODUCT + EUCLIDEAN_LOSS, settings)
    result = train(tmp_path, HIDDEN_NET + LINEAR + PYTHON_LOSS, settings, backward=backward)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), result, expected)


def list_leaves(s: Solver) -> list[Any]:
    return jax.tree.leaves((s.train_state.params, s.train_state.opt_state))


@pytest.mark.parametrize("snapshot", ["x.orbax", "x_iter_5.solverstate"])
def test_resume_restores_the_blobs_of_a_layer(tmp_path: Path, snapshot: str) -> None:
    uninterrupted = make_solver(tmp_path, HIDDEN_NET + LINEAR + PYTHON_LOSS)
    uninterrupted.step(5)
    uninterrupted.snapshot()
    uninterrupted.step(5)
    resumed = make_solver(tmp_path, HIDDEN_NET + LINEAR + PYTHON_LOSS)
    resumed.restore(tmp_path / snapshot)
    resumed.step(5)
    for resumed_leaf, expected_leaf in zip(list_leaves(resumed), list_leaves(uninterrupted), strict=True):
        np.testing.assert_array_equal(resumed_leaf, expected_leaf)
    uninterrupted.close()
    resumed.close()


def test_caffemodel_stores_the_blobs_of_a_layer(tmp_path: Path) -> None:
    s = make_solver(tmp_path, HIDDEN_NET + LINEAR + PYTHON_LOSS)
    s.step(3)
    s.snapshot()
    stored_blobs = read_caffemodel(tmp_path / "x_iter_3.caffemodel")
    for i, stored_blob in enumerate(stored_blobs["ip"]):
        np.testing.assert_array_equal(s.train_state.params["ip"][str(i)], stored_blob)
    fine_tuning_solver = make_solver(
        tmp_path, HIDDEN_NET + LINEAR + PYTHON_LOSS, weights=[tmp_path / "x_iter_3.caffemodel"]
    )
    np.testing.assert_array_equal(fine_tuning_solver.train_state.params["ip"]["0"], s.train_state.params["ip"]["0"])
    for open_solver in (s, fine_tuning_solver):
        open_solver.close()


CONVOLUTION = """layer { name: "conv" type: "Convolution" bottom: "image" top: "score" convolution_param { num_output: 2
  kernel_size: 3 pad: 1 weight_filler { type: "gaussian" std: 0.3 } } }
"""
PIXEL_LOSS = """layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "label" top: "loss" }
"""
ACCURACY = python_layer("acc", "Score", "score label", "acc", "include { phase: TEST }")


def format_image_layers(class_name: str) -> str:
    """Return data layers of the TRAIN and TEST nets."""
    return "".join(
        python_layer(
            f"data{seed}", class_name, "", "image label", f"include {{ phase: {phase} }}", f"{{'seed': {seed}}}"
        )
        for seed, phase in ((1, "TRAIN"), (2, "TEST"))
    )


def test_loaded_weights_replace_the_blobs_of_the_instance(tmp_path: Path) -> None:
    """As in Caffe, the layer's blobs hold the loaded values, even if other values were written to them before."""
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


def test_training_on_images_of_many_sizes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Segmentation: shapes change in every iteration, in the train net and in the test net."""
    test_settings = 'test_iter: 6 test_interval: 10 test_initialization: false type: "Adam" momentum2: 0.99'
    with caplog.at_level(logging.INFO, logger="caffejax"):
        s = make_solver(tmp_path, format_image_layers("Images") + CONVOLUTION + PIXEL_LOSS + ACCURACY, test_settings)
        assert not s.net.has_host_layers  # data comes from outside of what is compiled
        result_before = s.test()[0]
        s.step(40)
        result_after = s.test()[0]
    assert result_after.loss < result_before.loss / 2
    assert result_after.outputs["acc"] > result_before.outputs["acc"]
    messages = [r.getMessage() for r in caplog.records]
    compile_messages = [m for m in messages if m.startswith("Compiling")]
    assert "Compiling for image (1, 3, 8, 4), label (1, 1, 8, 4) (2 shapes so far)" in compile_messages
    assert len(compile_messages) == 2 * 2  # in each net
    warnings = [m for m in messages if "get_state" in m]
    assert warnings == [
        f"Layer 'data{i}' (Python) has no get_state and set_state: checkpoints do not store its position in the data"
        for i in (1, 2)
    ]
    s.close()


@pytest.mark.parametrize("has_host_layer", [False, True])
def test_gradients_over_images_of_many_sizes_are_accumulated(tmp_path: Path, has_host_layer: bool) -> None:
    body = format_image_layers("Images") + CONVOLUTION + PIXEL_LOSS
    if has_host_layer:  # one more Python layer, so that the step is not compiled as a whole
        scaling_layer = python_layer("ten", "SimpleLayer", "score", "ten")
        body = format_image_layers("Images") + CONVOLUTION + scaling_layer + PIXEL_LOSS.replace('"score"', '"ten"')
    s = make_solver(tmp_path, body, "iter_size: 3")
    assert s.net.has_host_layers is has_host_layer
    params, state = s.variables
    (source,) = Net(format_image_layers("Images"), "TRAIN").sources().values()
    batches = [dict(zip(("image", "label"), next(source), strict=True)) for _ in range(3)]
    grads = [jax.grad(s.net.loss, has_aux=True)(params, state, batch)[0] for batch in batches]
    expected = jax.tree.map(lambda p, *gs: p - 0.05 * sum(gs) / 3, params, *grads)
    s.step(1)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), s.train_state.params, expected)
    s.close()


@pytest.mark.parametrize("snapshot", ["x.orbax", "x_iter_5.solverstate"])
def test_checkpoints_store_the_position_of_a_data_layer(tmp_path: Path, snapshot: str) -> None:
    body = format_image_layers("ResumableImages") + CONVOLUTION + PIXEL_LOSS + ACCURACY
    test_settings = "test_iter: 2 test_interval: 4"
    uninterrupted = make_solver(tmp_path, body, test_settings)
    uninterrupted.step(5)
    uninterrupted.snapshot()
    uninterrupted.step(7)
    resumed = make_solver(tmp_path, body, test_settings)
    resumed.restore(tmp_path / snapshot)
    resumed.step(7)
    assert resumed.loader.get_state() == uninterrupted.loader.get_state() == {"data1": {"index": 12}}
    assert resumed.tests.get_state() == uninterrupted.tests.get_state()
    for resumed_leaf, expected_leaf in zip(list_leaves(resumed), list_leaves(uninterrupted), strict=True):
        np.testing.assert_array_equal(resumed_leaf, expected_leaf)
    uninterrupted.close()
    resumed.close()


def test_position_that_json_does_not_support_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_layers.ResumableImages, "get_state", lambda self: {"x": np.zeros(3)})
    with pytest.raises(CaffejaxError, match=r"ResumableImages.get_state must return plain values that JSON supports"):
        make_solver(tmp_path, format_image_layers("ResumableImages") + CONVOLUTION + PIXEL_LOSS)


REGION_NET = (
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


def test_training_with_varying_numbers_of_regions(tmp_path: Path) -> None:
    """Detection: a Python layer that scales the regions gives the same params as a built-in layer."""
    scaling_layers = (
        'layer { name: "ten" type: "Power" bottom: "rois" top: "ten" power_param { scale: 10 } }',
        python_layer("ten", "SimpleLayer", "rois", "ten"),
    )
    params = []
    for scaling_layer in scaling_layers:
        s = make_solver(tmp_path, REGION_NET % scaling_layer)
        assert s.net.has_host_layers is ("Python" in scaling_layer)
        assert s.net.graph.blobs["cls"].shape == (1, 3)
        s.step(6)
        params.append(s.train_state.params)
        s.close()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *params)


def test_debug_info_and_debug_nans_read_no_additional_batches(tmp_path: Path, caplog: Any) -> None:
    """Neither option reads more data than training does."""
    body = (
        format_image_layers("ResumableImages")
        + python_layer("ten", "SimpleLayer", "image", "image")
        + CONVOLUTION
        + PIXEL_LOSS
    )
    s = make_solver(tmp_path, body, "debug_info: true display: 1", debug_nans=True)
    with caplog.at_level(logging.INFO, logger="caffejax"):
        s.step(3)
    assert s.loader.get_state() == {"data1": {"index": 3}}
    assert sum("[Forward] Layer data1, top blob image" in r.getMessage() for r in caplog.records) == 3
    s.close()
