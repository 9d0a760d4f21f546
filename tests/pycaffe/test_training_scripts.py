"""Training scripts as Caffe's users write them, with only `import caffejax.pycaffe as caffe` and NumPy."""

from pathlib import Path

import h5py
import numpy as np
import pytest

import caffejax.pycaffe as caffe

from .conftest import Write

DIGITS = Path(__file__).parents[2] / "configs" / "digits"


def test_learning_lenet(write: Write) -> None:
    """The loop of Caffe's LeNet notebook on digits: train step by step, and read loss and accuracy from the blobs."""
    settings = (DIGITS / "lenet_solver.prototxt").read_text().replace("snapshot: 250", "snapshot: 0")
    settings = settings.replace('net: "', f'net: "{DIGITS}/')
    solver = caffe.SGDSolver(write("lenet_solver.prototxt", settings))

    shapes = [(k, v.data.shape) for k, v in solver.net.blobs.items()]
    assert dict(shapes)["conv1"][1] == 20
    assert next((k, v[0].data.ndim, v[1].data.ndim) for k, v in solver.net.params.items()) == ("conv1", 4, 1)

    solver.net.forward()
    solver.test_nets[0].forward()
    assert solver.net.blobs["data"].data[:8, 0].any()
    solver.step(1)
    assert solver.net.params["conv1"][0].diff[:, 0].any()

    niter, test_interval = 50, 40
    train_loss = np.zeros(niter)
    test_acc = np.zeros(int(np.ceil(niter / test_interval)))
    for it in range(niter):
        solver.step(1)
        train_loss[it] = solver.net.blobs["loss"].data
        solver.test_nets[0].forward(start="conv1")  # of the batch that is there
        if it % test_interval == 0:
            correct = 0
            for _ in range(4):
                solver.test_nets[0].forward()
                correct += sum(
                    solver.test_nets[0].blobs["ip2"].data.argmax(1) == solver.test_nets[0].blobs["label"].data
                )
            test_acc[it // test_interval] = correct / 360
    assert train_loss[-5:].mean() < 0.5 * train_loss[:5].mean()
    assert test_acc[-1] > 0.8


CLASSIFIER = """
name: "classifier"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 dim: 8 dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
"""
INNER_PRODUCT_NET = (
    CLASSIFIER
    + """
layer { name: "fc" type: "InnerProduct" bottom: "conv" top: "fc"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } bias_filler { type: "constant" value: 0.5 } } }
"""
)
FULLY_CONVOLUTIONAL_NET = (
    CLASSIFIER
    + """
layer { name: "fc-conv" type: "Convolution" bottom: "conv" top: "fc-conv"
  convolution_param { num_output: 3 kernel_size: 6 } }
"""
)


def test_net_surgery(write: Write) -> None:
    """Convert a classifier to a fully convolutional net, which scores all windows of a larger image at once."""
    net = caffe.Net(write("fc.prototxt", INNER_PRODUCT_NET), caffe.TEST)
    net.save("fc.caffemodel")
    net_full_conv = caffe.Net(write("full.prototxt", FULLY_CONVOLUTIONAL_NET), "fc.caffemodel", caffe.TEST)
    params, params_full_conv = ["fc"], ["fc-conv"]
    fc_params = {pr: (net.params[pr][0].data, net.params[pr][1].data) for pr in params}
    conv_params = {pr: (net_full_conv.params[pr][0].data, net_full_conv.params[pr][1].data) for pr in params_full_conv}
    for pr, pr_conv in zip(params, params_full_conv, strict=True):
        conv_params[pr_conv][0].flat = fc_params[pr][0].flat
        conv_params[pr_conv][1][...] = fc_params[pr][1]
    net_full_conv.save("full.caffemodel")

    image = np.random.default_rng(0).normal(size=(2, 11, 9)).astype(np.float32)
    net_full_conv.blobs["data"].reshape(1, *image.shape)
    net_full_conv.reshape()
    net_full_conv.blobs["data"].data[...] = image
    scores = net_full_conv.forward()["fc-conv"]
    assert scores.shape == (1, 3, 4, 2)
    for i in range(4):
        for j in range(2):
            window_scores = net.forward(data=image[None, :, i : i + 8, j : j + 8])["fc"]
            np.testing.assert_allclose(scores[0, :, i, j], window_scores[0], rtol=1e-4, atol=1e-5)

    # editing a filter by hand
    net.blobs["data"].data[...] = image[:, :8, :8]
    net.params["conv"][1].data[0] = 0
    old_top = net.forward(end="conv")["conv"][0, 0].copy()
    net.params["conv"][1].data[0] = 1
    new_top = net.forward(end="conv")["conv"][0, 0]
    np.testing.assert_allclose(new_top, old_top + 1, rtol=1e-5, atol=1e-5)


FINE_TUNE = """
layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: 16 dim: 4 }} }} }}
layer {{ name: "label" type: "Input" top: "label" input_param {{ shape {{ dim: 16 }} }} }}
layer {{ name: "fc1" type: "InnerProduct" bottom: "data" top: "fc1" param {{ lr_mult: {lr} }} param {{ lr_mult: {lr} }}
  inner_product_param {{ num_output: 8 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "tanh" type: "TanH" bottom: "fc1" top: "fc1" }}
layer {{ name: "{top}" type: "InnerProduct" bottom: "fc1" top: "score"
  inner_product_param {{ num_output: {classes} weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "label" top: "loss" }}
layer {{ name: "acc" type: "Accuracy" bottom: "score" bottom: "label" top: "acc" }}
"""
SETTINGS = """
train_net: "{net}" base_lr: 0.3 lr_policy: "fixed" momentum: 0.5 max_iter: 100 snapshot_prefix: "tuned" display: 0
"""


def run_solvers(niter: int, solvers: list[tuple[str, caffe.Solver]], fill_inputs: object) -> dict[str, np.ndarray]:
    blobs = ("loss", "acc")
    result = {name: np.zeros((niter, 2)) for name, _ in solvers}
    for it in range(niter):
        for name, s in solvers:
            fill_inputs(s.net)  # type: ignore[operator]
            s.step(1)
            result[name][it] = [s.net.blobs[b].data.copy() for b in blobs]
    return result


def test_fine_tuning(write: Write) -> None:
    """Fine-tune the weights of a trained net for a new task, with a frozen layer and two solvers side by side."""
    r = np.random.default_rng(0)

    def fill_inputs(net: caffe.Net) -> None:
        x = r.normal(size=(16, 4)).astype(np.float32)
        net.blobs["data"].data[...] = x
        net.blobs["label"].data[...] = x[:, 0] + x[:, 1] > 0

    def make_solver(name: str, **settings: object) -> caffe.Solver:
        net = write(f"{name}.prototxt", FINE_TUNE.format(**settings))
        return caffe.get_solver(write(f"{name}_solver.prototxt", SETTINGS.format(net=net)))

    source_solver = make_solver("first", lr=1, top="fc_old", classes=2)
    run_solvers(40, [("first", source_solver)], fill_inputs)
    source_solver.net.save("first.caffemodel")

    tuned_solver, new_solver = (
        make_solver(n, lr=lr, top="fc_new", classes=3) for n, lr in (("tuned", 0), ("scratch", 1))
    )
    tuned_solver.net.copy_from("first.caffemodel")
    frozen_weight = source_solver.net.params["fc1"][0].data.copy()
    np.testing.assert_array_equal(tuned_solver.net.params["fc1"][0].data, frozen_weight)
    result = run_solvers(30, [("pretrained", tuned_solver), ("scratch", new_solver)], fill_inputs)
    np.testing.assert_array_equal(tuned_solver.net.params["fc1"][0].data, frozen_weight)
    assert not tuned_solver.net.params["fc1"][0].diff.any()
    assert result["pretrained"][-5:, 1].mean() > 0.8
    assert result["pretrained"][:10, 0].mean() < result["scratch"][:10, 0].mean()


LOGREG = """
layer {{ name: "data" type: "HDF5Data" top: "data" top: "label" include {{ phase: {phase} }}
  hdf5_data_param {{ source: "{source}" batch_size: 10 }} }}
"""


def test_brewing_logreg(write: Write) -> None:
    """Logistic regression on vectors in HDF5."""
    r = np.random.default_rng(1)
    x = r.normal(size=(100, 4)).astype(np.float32)
    y = (x @ [1, -2, 0.5, 0] > 0).astype(np.float32)
    layers = []
    for phase, rows in (("TRAIN", slice(0, 80)), ("TEST", slice(80, None))):
        with h5py.File(f"{phase}.h5", "w") as f:
            f["data"], f["label"] = x[rows], y[rows]
        source = write(f"{phase}.txt", str(Path(f"{phase}.h5").absolute()))
        layers.append(LOGREG.format(phase=phase, source=source))
    net = write(
        "logreg.prototxt",
        "".join(layers)
        + """
        layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
          inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
        layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
        """,
    )
    solver = caffe.get_solver(
        write(
            "solver.prototxt",
            f'train_net: "{net}" test_net: "{net}" test_iter: 2 test_interval: 50 base_lr: 0.5 lr_policy: "step" '
            'gamma: 0.1 stepsize: 500 display: 0 max_iter: 100 snapshot_prefix: "logreg" snapshot: 50',
        )
    )
    solver.solve()
    accuracy, batches = 0.0, 2
    for _ in range(batches):
        solver.test_nets[0].forward()
        accuracy += float(solver.test_nets[0].blobs["accuracy"].data)
    assert accuracy / batches >= 0.9
    assert {p.name for p in Path().glob("logreg_iter_*")} == {
        f"logreg_iter_{n}.{kind}" for n in (50, 100) for kind in ("caffemodel", "solverstate")
    }


SIAMESE = """
layer { name: "pair" type: "MemoryData" top: "pair" top: "sim"
  memory_data_param { batch_size: 8 channels: 2 height: 1 width: 4 } }
layer { name: "slice" type: "Slice" bottom: "pair" top: "x" top: "x_p" slice_param { axis: 1 slice_point: 1 } }
layer { name: "feat" type: "InnerProduct" bottom: "x" top: "feat" param { name: "w" } param { name: "b" }
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "feat_p" type: "InnerProduct" bottom: "x_p" top: "feat_p" param { name: "w" } param { name: "b" }
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "ContrastiveLoss" bottom: "feat" bottom: "feat_p" bottom: "sim" top: "loss" }
"""


def test_siamese(write: Write) -> None:
    """Train two branches with shared weights on pairs; one of the nets reads arrays."""
    r = np.random.default_rng(2)
    pairs = r.normal(size=(32, 2, 1, 4)).astype(np.float32)
    similar = r.integers(0, 2, 32).astype(np.float32)
    pairs[:, :, 0, 0] = np.where(similar, 2, [[2], [-2]]).T  # one coordinate tells
    settings = SETTINGS.format(net=write("siamese.prototxt", SIAMESE)).replace("base_lr: 0.3", "base_lr: 0.05")
    solver = caffe.SGDSolver(write("solver.prototxt", settings))
    net = solver.net
    net.set_input_arrays(pairs, similar)
    assert np.shares_memory(net.params["feat"][0].data, net.params["feat_p"][0].data)
    losses = []
    for _ in range(60):
        solver.step(1)
        losses.append(float(net.blobs["loss"].data))
    assert np.mean(losses[-8:]) < 0.5 * np.mean(losses[:8])
    np.testing.assert_array_equal(net.params["feat"][0].data, net.params["feat_p"][0].data)
    np.testing.assert_array_equal(net.params["feat"][0].diff, net.params["feat_p"][0].diff)


def test_feature_extraction(write: Write) -> None:
    net = caffe.Net(write("fc.prototxt", INNER_PRODUCT_NET), caffe.TEST)
    images = np.random.default_rng(3).normal(size=(5, 2, 8, 8)).astype(np.float32)
    net.blobs["data"].reshape(5, 2, 8, 8)
    out = net.forward_all(blobs=["conv"], data=images)
    assert out["conv"].shape == (5, 4, 6, 6)
    assert out["conv"].min() == 0  # after the ReLU in place
    w, b = (blob.data for blob in net.params["fc"])
    np.testing.assert_allclose(out["fc"], out["conv"].reshape(5, -1) @ w.T + b, rtol=1e-4, atol=1e-5)


def test_gradient_ascent_on_the_input(write: Write) -> None:
    """Gradient ascent on the input, as in deep dream: set a diff and run backward from an intermediate layer."""
    net = caffe.Net(write("fc.prototxt", "force_backward: true\n" + INNER_PRODUCT_NET), caffe.TEST)
    src, dst = net.blobs["data"], net.blobs["conv"]
    src.data[...] = np.random.default_rng(4).normal(size=src.shape)
    energy = []
    for _ in range(5):
        net.forward(end="relu")
        energy.append(float((dst.data**2).sum()))
        dst.diff[...] = dst.data
        net.backward(start="relu")
        g = src.diff[0]
        src.data[:] += 0.5 / np.abs(g).mean() * g
    assert energy == sorted(energy)
    assert energy[-1] > 2 * energy[0]


@pytest.mark.parametrize("mode", ["cpu", "default"])
def test_modes_are_set_before_nets_are_created(mode: str, write: Write) -> None:
    if mode == "cpu":
        caffe.set_mode_cpu()
    net = caffe.Net(write("fc.prototxt", INNER_PRODUCT_NET), caffe.TEST)
    assert np.isfinite(net.forward()["fc"]).all()
