"""Labels of forks' layers: Inputs that were given some shape take the one that their readers need."""

import logging

import pytest

from caffejax import GraphError, Net

LOSS = """
  layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 12 dim: 3 dim: 4 } } }
  layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 2 dim: 5 } } }
  layer { name: "conv" type: "Convolution" bottom: "data" top: "map"
    convolution_param { num_output: 6 kernel_size: 1 } }
  layer { name: "loss" type: "DetectionLoss" bottom: "map" bottom: "label" top: "loss"
    detection_loss_param { cls_num: 2 field_w: 40 field_h: 40 downsample_rate: 8 } }
"""
GROUP = """
  layer { name: "map" type: "Input" top: "scores" top: "deltas"
    input_param { shape { dim: 4 dim: 2 dim: 3 dim: 5 } shape { dim: 4 dim: 4 dim: 3 dim: 5 } } }
  layer { name: "labels" type: "Input" top: "small" top: "large" input_param { shape { dim: 2 } } }
  layer { name: "join" type: "Concat" bottom: "small" bottom: "large" top: "joined" concat_param { axis: 1 } }
  layer { name: "apart" type: "Reshape" bottom: "joined" top: "truth"
    reshape_param { shape { dim: -1 dim: 6 dim: 0 dim: 0 } } }
  layer { name: "loss" type: "DetectionGroupLoss" bottom: "scores" bottom: "deltas" bottom: "truth" top: "loss"
    detection_group_loss_param { cls_num: 2 field_w: 32 field_w: 64 field_h: 32 field_h: 64 stride: 8 batch_size: -1 } }
  layer { name: "figures" type: "DetectionGroupAccuracy" bottom: "scores" bottom: "deltas" bottom: "truth" top: "right"
    detection_group_accuracy_param { cls_num: 2 field_w: 32 field_w: 64 field_h: 32 field_h: 64 stride: 8 } }
"""


def test_a_label_takes_the_shape_that_its_reader_needs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        net = Net(LOSS, "TRAIN")
    assert net.graph.blobs["label"].shape == (2, 6, 3, 4)
    assert "Input 'label' is taken to be of shape (2, 6, 3, 4), as its readers need" in caplog.text
    assert net.graph.blobs["loss"].shape == (1, 1, 1, 2)


def test_also_through_what_joins_and_divides() -> None:
    net = Net(GROUP, "TRAIN")
    assert {net.graph.blobs[name].shape for name in ("small", "large")} == {(2, 6, 3, 5)}
    assert net.graph.blobs["truth"].shape == (4, 6, 3, 5)


def test_what_fits_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Net(LOSS.replace("dim: 2 dim: 5", "dim: 2 dim: 6 dim: 3 dim: 4"), "TRAIN")
    assert not caplog.text


def test_readers_that_differ_are_an_error() -> None:
    other = """
      layer { name: "pool" type: "Pooling" bottom: "map" top: "pooled" pooling_param { kernel_size: 2 } }
      layer { name: "second" type: "DetectionLoss" bottom: "pooled" bottom: "label" top: "loss2"
        detection_loss_param { cls_num: 2 field_w: 40 field_h: 40 downsample_rate: 8 } }
    """
    with pytest.raises(GraphError, match=r"layer 'second'.*\(2, 6, 2, 3\), not \(2, 6, 3, 4\)"):
        Net(LOSS + other, "TRAIN")


def test_labels_of_bvlc_are_not_touched() -> None:
    text = """
      layer { name: "data" type: "Input" top: "x" top: "label"
        input_param { shape { dim: 2 dim: 3 } shape { dim: 4 } } }
      layer { name: "loss" type: "SoftmaxWithLoss" bottom: "x" bottom: "label" top: "loss" }
    """
    with pytest.raises(GraphError, match="layer 'loss'"):
        Net(text, "TRAIN")
