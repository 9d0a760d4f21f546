"""The outputs of inference nets are what losses and scores of detectors read."""

import pytest

from caffejax import Net

WEIGHTED = """
  layer { name: "data" type: "Input" top: "data" top: "w"
    input_param { shape { dim: 2 dim: 3 } shape { dim: 2 dim: 4 } } }
  layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 4 } }
  layer { name: "loss" type: "SmoothL1Loss" bottom: "ip" bottom: "w" bottom: "w" top: "loss" loss_weight: 1 }
"""
DETECTOR = """
  layer { name: "data" type: "Input" top: "data" top: "truth"
    input_param { shape { dim: 1 dim: 1 dim: 3 dim: 7 } shape { dim: 1 dim: 1 dim: 2 dim: 8 } } }
  layer { name: "found" type: "Scale" bottom: "data" top: "found" }
  layer { name: "score" type: "DetectionEvaluate" bottom: "found" bottom: "truth" top: "score"
    detection_evaluate_param { num_classes: 2 } }
"""


@pytest.mark.parametrize(("text", "predictions"), [(WEIGHTED, ("ip",)), (DETECTOR, ("found",))])
def test_inference_outputs_are_the_inputs_of_losses_and_scores(text: str, predictions: tuple[str, ...]) -> None:
    assert Net(text).for_inference().outputs == predictions
