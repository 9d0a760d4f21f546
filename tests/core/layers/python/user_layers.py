"""Python layers with Caffe's interface, and traceable ones, which the nets of the tests name as their module."""

import ast

import jax
import jax.numpy as jnp
import numpy as np

import caffejax
import caffejax.pycaffe as caffe


class SimpleLayer(caffe.Layer):
    """Multiplies its bottom by ten."""

    stateless = True

    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = 10 * bottom[0].data

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = 10 * top[0].diff


class ExceptionLayer(caffe.Layer):
    def setup(self, bottom, top):
        raise RuntimeError("raised on purpose")

    def forward(self, bottom, top):
        pass


class FailsLater(SimpleLayer):
    """Raises in the method that param_str names."""

    def forward(self, bottom, top):
        super().forward(bottom, top)
        if self.param_str == "forward":
            raise ZeroDivisionError("in forward")

    def backward(self, top, propagate_down, bottom):
        raise KeyError("in backward")


class ParameterLayer(caffe.Layer):
    """Returns a learnable number as its top."""

    def setup(self, bottom, top):
        self.blobs.add_blob(1)
        self.blobs[0].data[0] = 5

    def reshape(self, bottom, top):
        top[0].reshape(1)

    def forward(self, bottom, top):
        top[0].data[...] = self.blobs[0].data

    def backward(self, top, propagate_down, bottom):
        self.blobs[0].diff[0] = 1


class LearnedNumber(ParameterLayer):
    """The same; its gradient follows from that of the top."""

    def backward(self, top, propagate_down, bottom):
        self.blobs[0].diff[...] = top[0].diff


class PhaseLayer(caffe.Layer):
    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape()

    def forward(self, bottom, top):
        top[0].data[()] = self.phase


class ParamStringLayer:
    """Returns the number in its param_str; the class has no base class and no setup."""

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        assert self.param_str == self.param_str_
        top[0].data[...] = float(self.param_str)

    def backward(self, top, propagate_down, bottom):
        pass


class Euclidean(caffe.Layer):
    """EuclideanLoss, as Caffe's example of a Python layer computes it."""

    def setup(self, bottom, top):
        if len(bottom) != 2:
            raise Exception("needs two bottoms")

    def reshape(self, bottom, top):
        if bottom[0].count != bottom[1].count:
            raise Exception("the bottoms must have equal counts")
        self.difference = np.zeros_like(bottom[0].data, dtype=np.float32)
        top[0].reshape(1)

    def forward(self, bottom, top):
        self.difference[...] = bottom[0].data - bottom[1].data
        top[0].data[...] = np.sum(self.difference**2) / bottom[0].num / 2

    def backward(self, top, propagate_down, bottom):
        for i, sign in enumerate((1, -1)):
            if propagate_down[i]:
                bottom[i].diff[...] = top[0].diff * sign * self.difference / bottom[i].num


class Linear(caffe.Layer):
    """InnerProduct with bias; `num_output` and initial values are in param_str. Diffs are accumulated as in Caffe."""

    stateless = True

    def setup(self, bottom, top):
        settings = ast.literal_eval(self.param_str)
        n, rows = settings["num_output"], bottom[0].data.reshape(bottom[0].shape[0], -1)
        self.blobs.add_blob(n, rows.shape[1])
        self.blobs.add_blob(n)
        self.blobs[0].data[...] = np.linspace(-1, 1, n * rows.shape[1]).reshape(n, -1)
        self.blobs[1].data[...] = settings.get("bias", 0)

    def reshape(self, bottom, top):
        top[0].reshape(bottom[0].num, self.blobs[1].count)

    def forward(self, bottom, top):
        rows = bottom[0].data.reshape(bottom[0].num, -1)
        top[0].data[...] = rows @ self.blobs[0].data.T + self.blobs[1].data

    def backward(self, top, propagate_down, bottom):
        rows = bottom[0].data.reshape(bottom[0].num, -1)
        self.blobs[0].diff[...] += top[0].diff.T @ rows
        self.blobs[1].diff[...] += top[0].diff.sum(axis=0)
        if propagate_down[0]:
            bottom[0].diff[...] = (top[0].diff @ self.blobs[0].data).reshape(bottom[0].shape)


class WrongGradient(SimpleLayer):
    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = 9 * top[0].diff


class SquareInPlace(caffe.Layer):
    """Squares its bottom in place, so that backward can recover x only up to its sign."""

    def setup(self, bottom, top):
        assert bottom[0] is top[0]

    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data ** 2

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = top[0].diff * 2 * np.sqrt(bottom[0].data)


class Images(caffe.Layer):
    """A data layer as in segmentation nets: one image and its label map, of varying size.

    Tops are shaped for the next image in `reshape`, before `forward` returns it.
    """

    sizes = ((4, 6), (8, 4), (6, 6))

    def setup(self, bottom, top):
        if len(top) != 2 or bottom:
            raise Exception("gives an image and its labels")
        settings = ast.literal_eval(self.param_str)
        self.seed, self.index = settings["seed"], 0

    def reshape(self, bottom, top):
        h, w = self.sizes[self.index % len(self.sizes)]
        rng = np.random.default_rng((self.seed, self.index))
        self.image = rng.normal(size=(3, h, w))
        self.labels = (self.image.sum(axis=0, keepdims=True) > 0).astype(float)
        top[0].reshape(1, *self.image.shape)
        top[1].reshape(1, *self.labels.shape)

    def forward(self, bottom, top):
        top[0].data[...] = self.image
        top[1].data[...] = self.labels
        self.index += 1

    def backward(self, top, propagate_down, bottom):
        raise AssertionError("a data layer's backward is never called")


class ResumableImages(Images):
    def get_state(self):
        return {"index": self.index}

    def set_state(self, state):
        self.index = state["index"]


class Rows(caffe.Layer):
    """A data layer that returns 8 rows; the numbers of its passes are in NUM_PASSES. Its position is in snapshots."""

    def setup(self, bottom, top):
        self.index = 0

    def reshape(self, bottom, top):
        top[0].reshape(8, 5)
        top[1].reshape(8, 3)

    def forward(self, bottom, top):
        NUM_PASSES.append(self.index)
        draw = np.random.default_rng(self.index)
        for blob in top:
            blob.data[...] = draw.normal(size=blob.shape)
        self.index += 1

    def get_state(self):
        return self.index

    def set_state(self, state):
        self.index = state


def no_bottoms():
    return jnp.zeros((8, 5))


class Regions(caffe.Layer):
    """A data layer as in detection nets: named tops, shaped in `setup`, and reshaped in `forward`."""

    def setup(self, bottom, top):
        settings = ast.literal_eval(self.param_str)
        self._classes = settings["num_classes"]
        self._index = {"data": 0, "rois": 1, "labels": 2}
        self._draw = np.random.default_rng(0)
        top[self._index["data"]].reshape(2, 3, 8, 8)
        top[self._index["rois"]].reshape(1, 4)
        top[self._index["labels"]].reshape(1)

    def reshape(self, bottom, top):
        """Do nothing: tops are reshaped in forward."""

    def forward(self, bottom, top):
        n = self._draw.integers(1, 6)
        rois = self._draw.normal(size=(n, 4))
        blobs = {
            "data": self._draw.normal(size=(2, 3, 8, 8)),
            "rois": rois,
            "labels": (rois[:, 0] > 0) * (self._classes - 1),
        }
        for name, blob in blobs.items():
            top[self._index[name]].reshape(*blob.shape)
            top[self._index[name]].data[...] = blob.astype(np.float32, copy=False)

    def backward(self, top, propagate_down, bottom):
        pass


class Score(caffe.Layer):
    """Computes the fraction of correct labels; it has no backward."""

    def reshape(self, bottom, top):
        top[0].reshape()

    def forward(self, bottom, top):
        top[0].data[()] = np.mean(bottom[0].data.argmax(axis=1) == bottom[1].data[:, 0])


class NoForward(caffe.Layer):
    def setup(self, bottom, top):
        pass


class CountInBlob(caffe.Layer):
    """Writes into its blob in forward."""

    def setup(self, bottom, top):
        self.blobs.add_blob(2)

    def reshape(self, bottom, top):
        top[0].reshape(2)

    def forward(self, bottom, top):
        self.blobs[0].data[...] += 1
        top[0].data[...] = self.blobs[0].data


class CountsPasses(SimpleLayer):
    """Multiplies its bottom by the number of the pass of this instance; the number is in NUM_PASSES by its setup."""

    stateless = False

    def setup(self, bottom, top):
        NUM_PASSES.append(0)
        self.index, self.rows = len(NUM_PASSES) - 1, bottom[0].num

    def forward(self, bottom, top):
        assert bottom[0].num == self.rows
        NUM_PASSES[self.index] += 1
        self.factor = NUM_PASSES[self.index]
        top[0].data[...] = self.factor * bottom[0].data

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = self.factor * top[0].diff


NUM_PASSES = []  # of each instance of CountsPasses
RECORD = []  # what instances of Recorder did


class Recorder(SimpleLayer):
    """Appends to RECORD which method ran; param_str is the layer's name. It may have no top."""

    def reshape(self, bottom, top):
        for blob in top:
            blob.reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        RECORD.append(f"{self.param_str} forward")
        for blob in top:
            blob.data[...] = 2 * bottom[0].data

    def backward(self, top, propagate_down, bottom):
        RECORD.append(f"{self.param_str} backward")
        for blob in top:
            bottom[0].diff[...] = 2 * blob.diff


class SomeRows(caffe.Layer):
    """Returns the first rows of its bottom. How many is settled outside of the net."""

    num_rows = 8

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        copy_rows(bottom[0], top[0], self.num_rows)

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[: self.num_rows] = top[0].diff


def copy_rows(source, target, n):
    target.reshape(n, *source.shape[1:])
    target.data[...] = source.data[:n]


class ReshapesInForward(SomeRows):
    def forward(self, bottom, top):
        top[0].reshape(self.num_rows, *bottom[0].shape[1:])
        super().forward(bottom, top)


NOT_A_LAYER = 3


def cube(x):
    """A traceable layer."""
    return x**3


def sum_and_product(x, y):
    return x + y, x * y


def noise(x, *, key):
    return x + jax.random.normal(key, x.shape)


def no_key(x, *, key):
    return x if key is None else x * 0


def raise_type_error(x):
    raise TypeError("a traceable layer's own error")


class LearnedScale:
    """Scales each channel by a learned factor; param_str is the initial factor."""

    def blobs(self, x):
        return [caffejax.ParamSpec((x.shape[1],), value=np.full(x.shape[1], float(self.param_str)))]

    def __call__(self, blobs, x):
        return x * blobs[0] * (1 if self.phase == caffe_train() else 2)

    def backward(self, blobs, x, *, y, dy):
        return (jnp.sum(x * dy, axis=0),), dy * blobs[0]


def caffe_train():
    return 0
