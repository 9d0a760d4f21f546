"""MemoryData: nets with arrays as their data."""

import numpy as np
import pytest

import caffejax
import caffejax.pycaffe as caffe

from .conftest import make_input_net

MEMORY = """
layer { name: "m" type: "MemoryData" top: "data" top: "label"
  memory_data_param { batch_size: 2 channels: 1 height: 2 width: 3 } }
layer { name: "double" type: "Power" bottom: "data" top: "double" power_param { scale: 2 } }
"""


def test_memory_data_without_labels() -> None:
    net = caffe.Net(MEMORY.replace(' top: "label"', ""), caffe.TEST)
    data = np.arange(12, dtype=np.float32).reshape(2, 1, 2, 3)
    net.set_input_arrays(data, np.zeros(2, np.float32))
    np.testing.assert_array_equal(net.forward()["double"], 2 * data)


def test_memory_data_repeats_the_arrays() -> None:
    net = caffe.Net(MEMORY, caffe.TEST)
    assert net.inputs == []
    with pytest.raises(caffejax.GraphError, match="set_input_arrays"):
        net.forward()
    data = np.arange(24, dtype=np.float32).reshape(4, 1, 2, 3)
    net.set_input_arrays(data, np.arange(4, dtype=np.float32))
    for rows in ([0, 1], [2, 3], [0, 1]):
        out = net.forward()
        np.testing.assert_array_equal(out["double"], 2 * data[rows])
        np.testing.assert_array_equal(out["label"], rows)


@pytest.mark.parametrize(
    ("data", "labels", "message"),
    [
        (np.zeros((4, 1, 2, 3)), np.zeros(4, np.float32), "data array must be float32"),
        (np.zeros((4, 1, 2, 3), np.float32)[::2], np.zeros(2, np.float32), "C contiguous"),
        (np.zeros((4, 1, 3, 3), np.float32), np.zeros(4, np.float32), "must be of shape"),
        (np.zeros((4, 1, 2, 3), np.float32), np.zeros(2, np.float32), "same first dimension"),
        (np.zeros((3, 1, 2, 3), np.float32), np.zeros(3, np.float32), "multiple of the batch size 2"),
    ],
)
def test_memory_data_rejects_invalid_arrays(data: np.ndarray, labels: np.ndarray, message: str) -> None:
    with pytest.raises(caffejax.GraphError, match=message):
        caffe.Net(MEMORY, caffe.TEST).set_input_arrays(data, labels)
    with pytest.raises(caffejax.GraphError, match="first layer is MemoryData"):
        make_input_net().set_input_arrays(data, labels)
