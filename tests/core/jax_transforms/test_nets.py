"""The questions of every type, asked of nets of `configs/`."""

import re
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import pytest

from layer_suite import BATCH, NET_QUESTIONS, TRANSFORM_QUESTIONS, Case, Shape, properties
from layer_suite.case_net import cached_case_net
from layer_suite.export import net_exports_with_symbolic_batch_for_all_platforms

CONFIGS = Path(__file__).parents[3] / "configs"


def config(name: str, phase: Literal["TRAIN", "TEST"], size: int, channels: int = 3) -> Case:
    """Return the case of a net of `configs/` for smaller images, with an eighth of the filters."""
    text = (CONFIGS / name / "train_val.prototxt").read_text()
    text = re.sub(r'layer \{[^\n]*type: "Input"[^\n]*\n', "", text)
    text = re.sub(r"(num_output|group): (\d+)", lambda m: f"{m[1]}: {max(int(m[2]) // 8, min(int(m[2]), 2))}", text)
    input_shapes: dict[str, Shape] = {"data": (BATCH, channels, size, size)}
    if phase == "TRAIN":
        input_shapes["label"] = (BATCH,)
    return Case(
        f"{name}_{phase}", text, input_shapes, phase, random="Dropout" in text and phase == "TRAIN", is_net=True
    )


LENET_TEST = config("lenet", "TEST", 16, channels=1)
test_first_net = properties(config("lenet", "TRAIN", 16, channels=1), questions=TRANSFORM_QUESTIONS)
test_other_nets = pytest.mark.long(properties(LENET_TEST, config("cifar10_full", "TRAIN", 16), questions=NET_QUESTIONS))
# they are lowered, but not run, which would take too long
test_large_nets = pytest.mark.long(
    properties(
        config("squeezenet", "TRAIN", 35),
        config("mobilenet", "TRAIN", 64),
        config("resnet50", "TRAIN", 64),
        config("googlenet", "TRAIN", 64),
        config("caffenet", "TRAIN", 67),
        questions=[net_exports_with_symbolic_batch_for_all_platforms],
    )
)


@pytest.mark.parametrize("kernels", ["fast", "reference"])
def test_test_net_without_loss_has_gradient_of_its_data(kernels: Any) -> None:
    case_net = cached_case_net(LENET_TEST, kernels)
    assert not any(weight for layer in case_net.net.graph.layers for weight in layer.loss_weights)

    def compute_score(data: Any) -> Any:
        return case_net.net.apply(case_net.params, case_net.state, {"data": data}, blobs=["prob"])[0]["prob"][0, 1]

    result = jax.grad(compute_score)(case_net.inputs["data"])
    assert np.all(np.any(result[0], axis=(1, 2)))
    assert not np.any(result[1:]), "of the other images"
