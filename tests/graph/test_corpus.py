"""Real public nets: each that BVLC Caffe loads builds here with the same layers, blobs and params."""

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from caffejax.graph import Graph, build_graph, net_state
from caffejax.layers import layer_types
from caffejax.schema import read_net

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"

pytestmark = [
    pytest.mark.skipif(not CORPUS.is_dir(), reason=f"needs the corpus of public nets in {CORPUS}, which is absent"),
    pytest.mark.slow,
]


def nets() -> list[str]:
    if not CORPUS.is_dir():
        return []
    index = json.loads((CORPUS / "index.json").read_text())
    return [entry["file"] for entry in index if entry.get("golden") == "full"]


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    with gzip.open(CORPUS / "golden.json.gz") as file:
        return json.load(file)


def describe(graph: Graph) -> dict[str, Any]:
    """A graph without its inserted splits, in the words of the recording."""
    origin: dict[str, str] = {}
    layers = []
    for layer in graph.layers:
        bottoms = [origin.get(b, b) for b in layer.bottoms]
        if layer.inserted_split:
            origin.update(dict.fromkeys(layer.tops, bottoms[0]))
            continue
        layers.append(
            {
                "name": layer.name,
                "type": layer.type.name,
                "bottoms": bottoms,
                "tops": list(layer.tops),
                "params": [list(p.blob.shape) for p in layer.params],
            }
        )
    return {
        "layers": layers,
        "blobs": {name: list(blob.shape) for name, blob in graph.blobs.items() if name not in origin},
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("file", nets())
def test_builds_what_caffe_builds(file: str, golden: dict[str, Any]) -> None:
    with zipfile.ZipFile(CORPUS / "nets.zip") as archive:
        net = read_net(archive.read(file).decode())
    if unknown := {layer.type for layer in net.layer} & {"Python"} - set(layer_types()):
        pytest.skip(f"needs layer types that a later version brings: {', '.join(unknown)}")
    for state, expected in golden[file].items():
        phase, _, stage = state.partition("+")
        graph = build_graph(net, net_state(net, phase, stages=[stage] if stage else []))  # type: ignore[arg-type]
        built = describe(graph)
        assert built == {key: expected[key] for key in built}, state
