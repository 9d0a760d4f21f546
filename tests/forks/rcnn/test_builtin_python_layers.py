"""Built-in Python layers: used only if the user's module does not exist."""

import sys
from pathlib import Path

import numpy as np
import pytest

from caffejax import Net
from caffejax.base.errors import CaffejaxError

LAYER = """layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 4 } } }
layer { name: "mask" type: "Python" bottom: "x" top: "y" %s python_param { module: "%s" layer: "%s" } }"""
USER_MODULE = "def MaskLayer(x):\n    return x + 1\n"


def infer_top_shape(module: str, cls: str = "MaskLayer", fields: str = "") -> tuple[int, ...]:
    net = Net(LAYER % (fields, module, cls), "TEST")
    return net.apply({}, {}, {"x": np.zeros((2, 4), np.float32)})[0]["y"].shape


def test_an_existing_module_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert infer_top_shape("pylayer.mask_layer") == (2, 1, 2, 2)
    assert infer_top_shape("lib.pylayer.mask_layer") == (2, 1, 2, 2)
    folder = tmp_path / "own" / "pylayer"
    folder.mkdir(parents=True)
    (folder / "mask_layer.py").write_text(USER_MODULE)
    assert infer_top_shape("own.pylayer.mask_layer") == (2, 4)


def test_other_modules_are_reported_missing() -> None:
    for module, cls in (
        ("pylayer.mask_layer", "Masks"),
        ("mask_layer", "MaskLayer"),
        ("xpylayer.mask_layer", "MaskLayer"),
    ):
        with pytest.raises(CaffejaxError, match="there is no Python module"):
            infer_top_shape(module, cls)


def test_numbers_of_bottoms_and_tops_are_validated() -> None:
    with pytest.raises(CaffejaxError, match="MaskLayer, which is built in, produces exactly 1 top, but has 2"):
        infer_top_shape("pylayer.mask_layer", fields='top: "z"')


BUILT_IN_NET = """
layer { name: "rpn" type: "Input" top: "scores" top: "boxes" top: "info" input_param {
  shape { dim: 1 dim: 18 dim: 4 dim: 5 } shape { dim: 1 dim: 36 dim: 4 dim: 5 } shape { dim: 1 dim: 3 } } }
layer { name: "p" type: "Python" bottom: "scores" bottom: "boxes" bottom: "info" top: "rois"
  python_param { module: "rpn.proposal_layer" layer: "ProposalLayer" param_str: "'feat_stride': 16" } }
"""


def test_built_in_layers_do_not_import_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rpn").mkdir()
    (tmp_path / "rpn" / "proposal_layer.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    net = Net(BUILT_IN_NET, file=str(tmp_path / "x.prototxt"), no_python_layers=True)
    assert "rois" in net.graph.outputs
    assert not (tmp_path / "imported").exists()
