"""Each layer type exported to ONNX: onnxruntime reproduces the net on a recorded case."""

from typing import Any

import numpy as np
import pytest
from onnx_oracle import assert_model_equals_net

from caffejax.base.variables import Variables
from caffejax.core.layers import layer_types
from caffejax.core.program.net import Net
from caffejax.export import make_inference_model
from caffejax.export.onnx.layer_converters import ONNX
from golden_cases import ACCEPTED_CASES, find_first_cases, get_layer_type_of_case, is_fork_case
from layer_nets import Replay

FIRST_CASES = find_first_cases([case for case in ACCEPTED_CASES if "stochastic" not in case])
HOST_TYPES = {name for name, case in FIRST_CASES.items() if get_layer_type_of_case(case).on_host} | {
    "ScaleRoute"
}  # as recorded
TYPES_WITHOUT_TOPS = {"Silence"}  # has no top
RANDOM_TYPES = {"Python"}  # the recorded one draws samples
FIXED_BATCH_TYPES = {"MarginInnerProduct"}  # one bottom is a param, whose rows are those that there are

# beside those with operators of their own, one for each way of converting primitives
QUICK_TYPES = {"Scale", "ArgMax", "Reduction", "Crop", "Embed", "LSTM", "ROIPooling", "BatchReindex"}


def mark_case(name: str, case: dict[str, Any]) -> Any:
    sampled = not is_fork_case(case) and (case["type"] in ONNX.rules or name in QUICK_TYPES)
    return pytest.param(case, id=name, marks=[] if sampled else [pytest.mark.long])


def test_operators_belong_to_registered_layer_types() -> None:
    assert set(ONNX.rules) <= set(layer_types())


@pytest.mark.parametrize(
    "case",
    [
        mark_case(name, case)
        for name, case in FIRST_CASES.items()
        if name not in HOST_TYPES | TYPES_WITHOUT_TOPS | RANDOM_TYPES
    ],
)
def test_a_layer_gives_equal_outputs(case: dict[str, Any]) -> None:
    replay = Replay(case)
    layer = replay.layer
    output_of_top = {top: f"{top}/layer" if top in replay.net.input_names else top for top in layer.tops}
    subject = make_inference_model(replay.net, Variables(replay.params, replay.state), layer.tops)
    assert subject.outputs == tuple(output_of_top.values())
    inputs = {name: np.asarray(replay.inputs[name]) for name in subject.inputs}
    options = {"symbolic_batch": False} if case["type"] in FIXED_BATCH_TYPES else {}
    model = assert_model_equals_net(subject, inputs, **options)
    assert model.graph.node


def test_embed_gives_zeros_for_padding() -> None:
    """The index -1 of ONNX's Gather would be the last row."""
    net = Net(
        """
        layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 4 } } }
        layer { name: "e" type: "Embed" bottom: "x" top: "y" embed_param { num_output: 2 input_dim: 3 } }
        """
    )
    variables = Variables(
        {"e": {"weight": np.arange(1, 7, dtype=np.float32).reshape(3, 2), "bias": np.ones(2, np.float32)}}, {}
    )
    indices = np.array([-1, 0, 2, -1.5], np.float32)
    np.testing.assert_array_equal(net.apply(*variables, {"x": indices})[0]["y"], [[0, 0], [2, 3], [6, 7], [0, 0]])
    assert_model_equals_net(make_inference_model(net, variables, ("y",)), {"x": indices})
