"""`caffejax test --json`: valid JSON with the scores that NumPy computes, and words for numbers that are not finite."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from caffejax import Net, save_weights
from caffejax.cli import main

NET = """
layer { name: "data" type: "DummyData" top: "x" top: "y" dummy_data_param {
  shape { dim: 2 dim: 3 } shape { dim: 2 dim: 3 } data_filler { value: 3 } data_filler { value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param {
  num_output: 1 weight_filler { type: "constant" value: 0.5 } } }
layer { name: "log" type: "Log" bottom: "x" top: "log" log_param { scale: SCALE } }
layer { name: "loss" type: "EuclideanLoss" bottom: "x" bottom: "y" top: "loss" loss_weight: 0.5 }
"""


@pytest.mark.parametrize("scale", [1, -1, 0])
def test_scores_are_valid_json(
    scale: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.prototxt").write_text(NET.replace("SCALE", str(scale)))
    net = Net("net.prototxt", "TEST")
    save_weights("net.npz", net.graph, net.init(jax.random.key(0)))
    assert main(["test", "net.prototxt", "--weights=net.npz", "--iterations=2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    loss = ((3 - 1) ** 2 * 6) / (2 * 2)
    assert (result["iterations"], result["loss"]) == (2, 0.5 * loss)
    assert (result["outputs"]["ip"], result["outputs"]["loss"]) == ([4.5, 4.5], loss)
    with np.errstate(all="ignore"):
        logarithm = np.log(np.float32(3 * scale))
    logarithms = result["outputs"]["log"]
    assert all(isinstance(number, float) == bool(np.isfinite(logarithm)) for number in logarithms)
    np.testing.assert_allclose(list(map(float, logarithms)), [logarithm] * 6, rtol=1e-5)  # oneDNN's logarithm
