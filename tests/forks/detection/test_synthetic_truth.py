"""Random inputs are valid for the layers that read them, such as labels and box coordinates."""

import numpy as np

from caffejax import Net
from caffejax.core.data.synthetic_inputs import complete_inputs

DETECTION = """
  layer { name: "in" type: "Input" top: "loc" top: "conf" top: "prior" top: "truth" input_param {
    shape { dim: 3 dim: 16 } shape { dim: 3 dim: 12 } shape { dim: 1 dim: 2 dim: 16 }
    shape { dim: 1 dim: 1 dim: 9 dim: 8 } } }
  layer { name: "loss" type: "MultiBoxLoss" bottom: "loc" bottom: "conf" bottom: "prior" bottom: "truth" top: "loss"
    multibox_loss_param { num_classes: 3 background_label_id: 1 } }
"""


def test_ground_truth_is_boxes_within_images_of_every_class_but_the_background() -> None:
    net = Net(DETECTION, "TRAIN")
    rows = complete_inputs(net.graph, {}, np.random.default_rng(0))["truth"].reshape(9, 8)
    boxes = rows[:, 3:7]
    assert set(rows[:, 0]) == {0, 1, 2}
    assert set(rows[:, 1]) == {0, 2}
    assert ((boxes >= 0) & (boxes <= 1)).all()
    assert (boxes[:, 2:] > boxes[:, :2]).all()
    assert not rows[:, 7].any()
