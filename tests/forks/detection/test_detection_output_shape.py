"""The rule for the shape of DetectionOutput's top gives the errors of the forward function."""

import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.core.graph import build
from caffejax.core.program.net import Net
from layer_nets import net_text


@pytest.mark.parametrize(("settings", "num_scores"), [("", 26), ("keep_top_k: 0", 27)])
def test_the_shape_rule_keeps_the_errors_of_forward(
    settings: str, num_scores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = [(1, 36), (1, num_scores), (1, 2, 36)]
    text = net_text("DetectionOutput", f"detection_output_param {{ num_classes: 3 {settings} }}", shapes)

    def build_message() -> str:
        try:
            return str([blob.shape for blob in Net(text).graph.blobs.values()])
        except CaffejaxError as error:
            return str(error)

    rule_message = build_message()
    monkeypatch.setattr(build, "_shapes_by_rule", lambda *_: None)
    assert rule_message == build_message()
