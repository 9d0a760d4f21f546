"""Layers whose fork is determined by neighbouring layers."""

import jax
import numpy as np
import pytest

from caffejax import Net

INPUTS = """layer { name: "in" type: "Input" top: "map" top: "data"
  input_param { shape { dim: 1 dim: 8 dim: 2 dim: 3 } shape { dim: 1 dim: 3 dim: 40 dim: 60 } } }
"""


def make_detector(boxes: int, classes: int, prior: str) -> str:
    """Return the prototxt of a detector whose Convolutions predict `boxes` boxes for each cell."""
    layers = [INPUTS]
    for name, outputs in ("loc", 4 * boxes), ("conf", classes * boxes):
        layers.append(
            f'layer {{ name: "{name}" type: "Convolution" bottom: "map" top: "{name}" convolution_param {{ num_output: '
            f'{outputs} kernel_size: 1 }} }} layer {{ name: "{name}_flat" type: "Flatten" bottom: "{name}" top: '
            f'"{name}_flat" }}'
        )
    layers.append(
        'layer { name: "prior" type: "PriorBox" bottom: "map" bottom: "data" top: "prior" '
        f"prior_box_param {{ {prior} }} }}"
        'layer { name: "out" type: "DetectionOutput" bottom: "loc_flat" bottom: "conf_flat" bottom: "prior" top: "out" '
        f"detection_output_param {{ num_classes: {classes} }} }}"
    )
    return "\n".join(layers)


def compute_priors(boxes: int, classes: int, prior: str) -> np.ndarray:
    """Return the prior boxes in pixels, with shape (cells, boxes for each cell, 4)."""
    net = Net(make_detector(boxes, classes, prior), "TEST")
    params, state = net.init(jax.random.key(0))
    inputs = {name: np.zeros(net.graph.blobs[name].shape, np.float32) for name in net.input_names}
    prior_boxes = net.jit(lambda inputs: net.apply(params, state, inputs, blobs=("prior",))[0]["prior"])
    result = np.asarray(prior_boxes(inputs))[0, 0]
    return result.reshape(6, -1, 4) * (60, 40, 60, 40)


@pytest.mark.parametrize(
    ("boxes", "classes", "prior", "num_boxes"),
    [
        (2, 2, "min_size: 9 aspect_ratio: 4 flip: false", 2),
        (2, 8, "min_size: 9 aspect_ratio: 4 flip: false", 2),  # whose classes have as many outputs as TextBoxes' boxes
        (4, 2, "min_size: 9 aspect_ratio: 4 flip: false", 4),
        (2, 2, "min_size: 9 denser_prior_boxes: true", 2),
    ],
)
def test_the_number_of_boxes_of_a_cell(boxes: int, classes: int, prior: str, num_boxes: int) -> None:
    assert compute_priors(boxes, classes, prior).shape == (6, num_boxes, 4)


def test_boxes_of_textboxes() -> None:
    """TextBoxes repeats each box half a cell lower; cells are 20 pixels high."""
    plain_boxes, denser_boxes = (
        compute_priors(n, 2, "min_size: 9 max_size: 16 aspect_ratio: 4 flip: false") for n in (3, 6)
    )
    np.testing.assert_allclose(denser_boxes[:, ::2], plain_boxes, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        denser_boxes[:, 1::2] - plain_boxes, np.broadcast_to([0, 10, 0, 10], plain_boxes.shape), atol=1e-4
    )


def test_boxes_of_faceboxes() -> None:
    """Each cell has 16 squares of size 32, four of 64 and one of 128; the center of the first cell is (10, 10)."""
    (first_cell, *_) = compute_priors(21, 2, "min_size: 32 min_size: 64 min_size: 128")
    centers, sizes = (first_cell[:, :2] + first_cell[:, 2:]) / 2, first_cell[:, 2:] - first_cell[:, :2]
    np.testing.assert_allclose(sizes[:, 0], [31] * 16 + [63] * 4 + [127], rtol=1e-5)
    np.testing.assert_allclose(centers[:4], [(-6, -6), (2, -6), (10, -6), (18, -6)], atol=1e-3)
    np.testing.assert_allclose(centers[15:], [(18, 18), (-6, -6), (10, -6), (-6, 10), (10, 10), (10, 10)], atol=1e-3)
