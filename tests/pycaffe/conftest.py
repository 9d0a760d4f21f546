"""Nets and fixtures that several tests use."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import caffejax.pycaffe as caffe
from caffejax.pycaffe import _global_state

DUMMY_DATA_NET = """
name: "small"
layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 5 dim: 2 dim: 8 dim: 8 } shape { dim: 5 }
    data_filler { type: "constant" value: 1 } data_filler { type: "constant" value: 2 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  param { decay_mult: 1 } param { decay_mult: 0 }
  convolution_param { num_output: 11 kernel_size: 2 pad: 1
    weight_filler { type: "gaussian" std: 1 } bias_filler { type: "constant" value: 2 } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip_blob"
  inner_product_param { num_output: 7 weight_filler { type: "gaussian" std: 2.5 }
    bias_filler { type: "constant" value: -3 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip_blob" bottom: "label" top: "loss" }
"""

# with Input layers; a blob with two readers, an in-place layer, dropout
INPUT_NET = """
name: "fed"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 2 dim: 6 dim: 6 } } }
layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 4 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 3 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool"
  pooling_param { global_pooling: true pool: AVE } }
layer { name: "fc1" type: "InnerProduct" bottom: "pool" top: "fc1"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "drop" type: "Dropout" bottom: "fc1" top: "fc1" }
layer { name: "fc2" type: "InnerProduct" bottom: "pool" top: "fc2"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "sum" type: "Eltwise" bottom: "fc1" bottom: "fc2" top: "sum" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "sum" bottom: "label" top: "loss" }
"""

CLOSE = {"rtol": 1e-5, "atol": 1e-6}
Write = Callable[[str, str], str]


def make_input_net(phase: int = caffe.TEST, prototxt: str = INPUT_NET) -> Any:
    """Return a net with Input layers, whose blobs have random values."""
    net = caffe.Net(prototxt, phase)
    rng = np.random.default_rng(0)
    net.blobs["data"].data[...] = rng.normal(size=net.blobs["data"].shape)
    net.blobs["label"].data[...] = rng.integers(0, 5, net.blobs["label"].shape)
    return net


def make_dummy_data_net(write: Write) -> Any:
    """Return a net with a DummyData layer."""
    return caffe.Net(write("small.prototxt", DUMMY_DATA_NET), caffe.TRAIN)


def draw_normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Draw normally distributed numbers."""
    return np.random.default_rng(seed).normal(3, 20, shape).astype(np.float32)


@pytest.fixture(autouse=True)
def _reset_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Reset pycaffe's process state, the log's handlers and the random seed, and change to a temporary directory."""
    logger = logging.getLogger("caffejax")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", True)
    logger.setLevel(logging.NOTSET)
    monkeypatch.setattr(_global_state, "_process", _global_state._Process())
    monkeypatch.chdir(tmp_path)
    caffe.set_random_seed(1)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a text to a file of the test and returns its path."""

    def write(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write
