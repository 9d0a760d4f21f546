"""Real public nets: each that BVLC Caffe loads builds here with the same layers, blobs and params.

So do those that it loads without settings of forks, which were stripped for it and are here.
"""

import gzip
import json
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from caffejax.core.graph import Graph, build_graph, make_net_state
from caffejax.core.schema import read_net
from caffejax.pycaffe import Blob, Layer

CORPUS = Path(__file__).parents[4] / "shared" / "corpus"

pytestmark = pytest.mark.skipif(
    not CORPUS.is_dir(), reason=f"needs the corpus of public nets in {CORPUS}, which is absent"
)


def list_nets() -> list[str]:
    if not CORPUS.is_dir():
        return []
    index = json.loads((CORPUS / "index.json").read_text())
    return [entry["file"] for entry in index if entry.get("golden") in ("full", "stripped")]


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    with gzip.open(CORPUS / "golden.json.gz") as file:
        return json.load(file)


@pytest.fixture(autouse=True)
def pyloss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide the module that the only net with a Python layer imports."""

    class EuclideanLossLayer(Layer):
        def reshape(self, bottom: list[Blob], top: list[Blob]) -> None:
            top[0].reshape(1)

        def forward(self, bottom: list[Blob], top: list[Blob]) -> None:
            top[0].data[...] = np.sum((bottom[0].data - bottom[1].data) ** 2) / bottom[0].num / 2

    module = ModuleType("pyloss")
    monkeypatch.setattr(module, "EuclideanLossLayer", EuclideanLossLayer, raising=False)
    monkeypatch.setitem(sys.modules, "pyloss", module)


def describe(graph: Graph) -> dict[str, Any]:
    """Describe a graph without its inserted splits in the format of the recording."""
    root_by_blob: dict[str, str] = {}
    layers = []
    for layer in graph.layers:
        bottoms = [root_by_blob.get(b, b) for b in layer.bottoms]
        if layer.is_inserted_split:
            root_by_blob.update(dict.fromkeys(layer.tops, bottoms[0]))
            continue
        layers.append(
            {
                "name": layer.name,
                "type": layer.type.name,
                "bottoms": bottoms,
                "tops": list(layer.tops),
                "params": [list(p.spec.shape) for p in layer.params],
            }
        )
    return {
        "layers": layers,
        "blobs": {name: list(blob.shape) for name, blob in graph.blobs.items() if name not in root_by_blob},
        "inputs": list(graph.input_layer_tops),
        "outputs": list(graph.outputs),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("file", list_nets())
def test_builds_what_caffe_builds(file: str, golden: dict[str, Any]) -> None:
    with zipfile.ZipFile(CORPUS / "nets.zip") as archive:
        net = read_net(archive.read(file).decode())
    for state, expected in golden[file].items():
        phase, _, stage = state.partition("+")
        graph = build_graph(net, make_net_state(net, phase, stages=[stage] if stage else []))  # type: ignore[arg-type]
        actual = describe(graph)
        for actual_layer, expected_layer in zip(actual["layers"], expected["layers"], strict=True):
            if expected_layer["params"] is None:  # not known without the setting
                actual_layer["params"] = None
        assert actual == {key: expected[key] for key in actual}, state
