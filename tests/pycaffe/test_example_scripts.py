"""Scripts in the style of Caffe's examples: classification in a notebook, and training from data layers in Python."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import caffejax.pycaffe as caffe
from caffejax.pycaffe import layers as L
from caffejax.pycaffe import params as P
from caffejax.pycaffe.coord_map import crop
from caffejax.pycaffe.proto import caffe_pb2

from .conftest import Write

MODULE = __name__
XAVIER = {"type": "xavier"}


def make_solver(write: Write, train: Any, test: Any = None, **settings: Any) -> caffe.Solver:
    """Write a solver as notebooks do: fill in a SolverParameter and print it."""
    s = caffe_pb2.SolverParameter()
    s.train_net = write("train.prototxt", str(train))
    if test is not None:
        s.test_net.append(write("test.prototxt", str(test)))
        s.test_interval = 1000
        s.test_iter.append(2)
        s.test_initialization = False
    s.type, s.lr_policy, s.base_lr, s.momentum = "SGD", "fixed", 0.01, 0.9
    s.snapshot_prefix, s.random_seed = "run", 0xCAFFE
    s.solver_mode = caffe_pb2.SolverParameter.GPU
    for name, value in settings.items():
        setattr(s, name, value)
    return caffe.get_solver(write("solver.prototxt", str(s)))


def test_classification(write: Write, tmp_path: Path) -> None:
    n = caffe.NetSpec()
    n.data = L.Input(shape={"dim": [10, 3, 27, 27]})
    n.conv1 = L.Convolution(n.data, kernel_size=5, stride=2, num_output=8, weight_filler=XAVIER)
    n.relu1 = L.ReLU(n.conv1, in_place=True)
    n.pool1 = L.Pooling(n.relu1, kernel_size=3, stride=2, pool=P.Pooling.MAX)
    n.norm1 = L.LRN(n.pool1, local_size=5, alpha=1e-4, beta=0.75)
    n.fc8 = L.InnerProduct(n.norm1, num_output=5, weight_filler=XAVIER)
    n.prob = L.Softmax(n.fc8)
    model_def = write("deploy.prototxt", str(n.to_proto()))
    caffe.Net(model_def, caffe.TEST).save("model.caffemodel")
    pixels = np.random.default_rng(0).integers(0, 256, (27, 27, 3), np.uint8)
    cv2.imwrite("cat.png", pixels)  # B, G, R

    caffe.set_mode_cpu()
    net = caffe.Net(model_def, "model.caffemodel", caffe.TEST)
    mu = np.load(write_mean(tmp_path)).mean(1).mean(1)
    transformer = caffe.io.Transformer({"data": net.blobs["data"].data.shape})
    transformer.set_transpose("data", (2, 0, 1))
    transformer.set_mean("data", mu)
    transformer.set_raw_scale("data", 255)
    transformer.set_channel_swap("data", (2, 1, 0))
    net.blobs["data"].reshape(50, 3, 27, 27)
    image = caffe.io.load_image("cat.png")
    transformed = transformer.preprocess("data", image)
    expected = pixels.transpose(2, 0, 1) - mu[:, None, None]
    np.testing.assert_allclose(transformed, expected, rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(transformer.deprocess("data", transformed), image, atol=1e-5)

    net.blobs["data"].data[...] = transformed
    output = net.forward()
    output_prob = output["prob"][0]
    assert output["prob"].shape == (50, 5)
    assert len(output_prob.argsort()[::-1][:5]) == 5
    np.testing.assert_allclose(output["prob"], np.tile(output_prob, (50, 1)), rtol=1e-5)
    assert {name: blob.data.shape for name, blob in net.blobs.items()} == {
        "data": (50, 3, 27, 27),
        "conv1": (50, 8, 12, 12),
        "pool1": (50, 8, 6, 6),
        "norm1": (50, 8, 6, 6),
        "fc8": (50, 5),
        "prob": (50, 5),
    }
    assert [(k, w.data.shape, b.data.shape) for k, (w, b) in net.params.items()] == [
        ("conv1", (8, 3, 5, 5), (8,)),
        ("fc8", (5, 288), (5,)),
    ]
    filters, feat = net.params["conv1"][0].data, net.blobs["conv1"].data[0]
    expected_feature = (filters * transformed[:, 4:9, 6:11]).sum((1, 2, 3)) + net.params["conv1"][1].data
    np.testing.assert_allclose(feat[:, 2, 3], np.maximum(expected_feature, 0), rtol=1e-3, atol=1e-2)


def write_mean(folder: Path) -> Path:
    path = folder / "mean.npy"
    np.save(path, np.random.default_rng(1).uniform(90, 130, (3, 32, 32)))
    return path


class Pictures(caffe.Layer):
    """Images with several labels each, as in a user's data layer."""

    def setup(self, bottom: Any, top: Any) -> None:
        params = eval(self.param_str)
        self.batch_size, self.num_drawn = params["batch_size"], 0
        top[0].reshape(self.batch_size, 3, *params["im_shape"])
        top[1].reshape(self.batch_size, 2)

    def forward(self, bottom: Any, top: Any) -> None:
        for i in range(self.batch_size):
            labels = np.array([self.num_drawn & 1, self.num_drawn >> 1 & 1])
            picture = np.random.default_rng(self.num_drawn).normal(size=top[0].data.shape[1:])
            picture[:2] += 4 * labels[:, None, None]
            top[0].data[i, ...] = picture
            top[1].data[i, ...] = labels
            self.num_drawn += 1

    def reshape(self, bottom: Any, top: Any) -> None:
        pass

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        pass


def test_multilabel_with_a_data_layer(write: Write) -> None:
    def make_net(**params: Any) -> Any:
        n = caffe.NetSpec()
        n.data, n.label = L.Python(module=MODULE, layer="Pictures", ntop=2, param_str=str(dict(params)))
        n.pool = L.Pooling(n.data, pool=P.Pooling.AVE, global_pooling=True)
        n.score = L.InnerProduct(n.pool, num_output=2, weight_filler=XAVIER)
        n.loss = L.SigmoidCrossEntropyLoss(n.score, n.label)
        return n.to_proto()

    train, val = ({"batch_size": 8, "im_shape": [9, 7], "split": split} for split in ("train", "val"))
    solver = make_solver(write, make_net(**train), make_net(**val), base_lr=0.1)
    solver.test_nets[0].share_with(solver.net)
    solver.step(60)
    is_correct = []
    for _ in range(3):
        solver.test_nets[0].forward()
        is_correct.append((solver.test_nets[0].blobs["score"].data > 0) == solver.test_nets[0].blobs["label"].data)
    assert np.mean(is_correct) > 0.9


class Segments(caffe.Layer):
    """Images of varying sizes with a label for each pixel, one at a time; tops are shaped in `reshape`."""

    def setup(self, bottom: Any, top: Any) -> None:
        self.idx = 0

    def reshape(self, bottom: Any, top: Any) -> None:
        height, width = [(20, 24), (16, 20), (22, 18)][self.idx % 3]
        self.data = np.random.default_rng(self.idx).normal(size=(3, height, width))
        self.label = (self.data[:1] > 0).astype(np.uint8)
        top[0].reshape(1, *self.data.shape)
        top[1].reshape(1, *self.label.shape)

    def forward(self, bottom: Any, top: Any) -> None:
        top[0].data[...] = self.data
        top[1].data[...] = self.label
        self.idx += 1


def test_fully_convolutional_training(write: Write) -> None:
    n = caffe.NetSpec()
    n.data, n.label = L.Python(module=MODULE, layer="Segments", ntop=2)
    n.conv = L.Convolution(n.data, kernel_size=3, pad=10, num_output=4, weight_filler=XAVIER)
    n.pool = L.Pooling(n.conv, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.score_fr = L.Convolution(n.pool, kernel_size=1, num_output=2)
    upsampling = {"num_output": 2, "kernel_size": 4, "stride": 2, "bias_term": False}
    n.upscore = L.Deconvolution(n.score_fr, convolution_param=upsampling, param=[{"lr_mult": 0}])
    n.score = crop(n.upscore, n.data)
    n.loss = L.SoftmaxWithLoss(n.score, n.label, loss_param={"normalize": False, "ignore_label": 255})
    solver = make_solver(write, n.to_proto(), n.to_proto(), base_lr=1e-4)

    og = np.ogrid[:4, :4]
    filt = (1 - abs(og[0] - 1.5) / 2) * (1 - abs(og[1] - 1.5) / 2)
    for name in [k for k in solver.net.params if "up" in k]:
        m, k, _, _ = solver.net.params[name][0].data.shape
        solver.net.params[name][0].data[range(m), range(k), :, :] = filt
    base = caffe.Net(write("base.prototxt", str(n.to_proto())), caffe.TEST)
    for blob, base_blob in zip(solver.net.params["conv"], base.params["conv"], strict=True):
        blob.data.flat = base_blob.data.flat
    for _ in range(2):
        solver.step(2)
        solver.test_nets[0].share_with(solver.net)
        net = solver.test_nets[0]
        sizes = []
        for _ in range(3):
            net.forward()
            best, label = net.blobs["score"].data[0].argmax(0), net.blobs["label"].data[0, 0]
            assert best.shape == label.shape
            sizes.append(label.size)
            assert net.blobs["loss"].data.flat[0] > 0
        assert sizes == [480, 320, 396]
    np.testing.assert_array_equal(solver.net.params["upscore"][0].data[0, 0], filt.astype(np.float32))
    assert not solver.net.params["upscore"][0].data[0, 1].any()
    assert (solver.net.params["conv"][0].data != base.params["conv"][0].data).any()


class Regions(caffe.Layer):
    """An image, and labelled regions whose number depends on the data; tops are shaped in `forward`."""

    def setup(self, bottom: Any, top: Any) -> None:
        for blob, shape in zip(top, ((1, 3, 8, 8), (1, 5), (1,)), strict=True):
            blob.reshape(*shape)

    def set_blobs(self, blobs: list[list[np.ndarray]]) -> None:
        self.remaining_blobs = blobs

    def forward(self, bottom: Any, top: Any) -> None:
        for blob, array in zip(top, self.remaining_blobs.pop(0), strict=True):
            blob.reshape(*array.shape)
            blob.data[...] = array.astype(np.float32, copy=False)

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        pass

    def reshape(self, bottom: Any, top: Any) -> None:
        pass


class SelectRows(caffe.Layer):
    """Selects every second region."""

    def setup(self, bottom: Any, top: Any) -> None:
        top[0].reshape(1, 5)
        top[1].reshape(1)

    def forward(self, bottom: Any, top: Any) -> None:
        for blob, source in zip(top, bottom, strict=True):
            selected_rows = source.data[::2]
            blob.reshape(*selected_rows.shape)
            blob.data[...] = selected_rows

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        pass

    def reshape(self, bottom: Any, top: Any) -> None:
        pass


def test_regions_of_images(write: Write) -> None:
    n = caffe.NetSpec()
    n.data, n.rois, n.labels = L.Python(module=MODULE, layer="Regions", ntop=3)
    n.conv = L.Convolution(n.data, kernel_size=3, num_output=4, weight_filler=XAVIER)
    n.image_score = L.Pooling(n.conv, pool=P.Pooling.AVE, global_pooling=True)
    n.kept, n.kept_labels = L.Python(
        n.rois, n.labels, module=MODULE, layer="SelectRows", ntop=2, propagate_down=[False] * 2
    )
    n.cls_score = L.InnerProduct(n.kept, num_output=3, weight_filler=XAVIER)
    n.loss_cls = L.SoftmaxWithLoss(n.cls_score, n.kept_labels)
    n.loss_image = L.Reduction(n.image_score, operation=P.Reduction.SUMSQ, loss_weight=0.5)
    solver = make_solver(write, n.to_proto(), iter_size=2)
    r = np.random.default_rng(0)
    sizes = [(8, 10, 5), (9, 8, 4), (8, 8, 6), (8, 10, 5)]
    batches = [[r.normal(size=(1, 3, h, w)), r.normal(size=(k, 5)), r.integers(0, 3, k)] for h, w, k in sizes]
    solver.net.layers[0].set_blobs(list(batches))
    while solver.iter < 2:
        solver.step(1)
    shapes = {name: blob.data.shape for name, blob in solver.net.blobs.items()}
    assert shapes["data"] == (1, 3, 8, 10)
    assert shapes["conv"] == (1, 4, 6, 8)
    assert shapes["cls_score"] == (3, 3)
    np.testing.assert_array_equal(solver.net.blobs["kept_labels"].data, batches[-1][2][::2])
    assert solver.net.params["conv"][0].diff.any()
    with pytest.raises(IndexError) as exc_info:
        solver.step(1)
    assert f"in layer 'data' (Python): {MODULE}.Regions.forward" in exc_info.value.__notes__
