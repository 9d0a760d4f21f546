"""MTCNN with its authors' weights finds a face in a photograph, and its eyes, nose and mouth."""

import importlib.metadata
import zipfile
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
import pytest
from face_finder import find_faces

import caffejax
from caffejax.base.variables import Variables
from caffejax.core.checkpoints.caffemodel import read_caffemodel, write_caffemodel
from caffejax.core.schema import read_net
from caffejax.cpu.frozen.frozen_net import Frozen
from caffejax.forks.detection.boxes import overlaps

pytestmark = pytest.mark.long

Weights = dict[str, dict[str, list[np.ndarray]]]  # of each net, by layer
# by eye, in pixels
FACE = np.array([176.0, 65, 272, 188])
LANDMARKS = {"left eye": (204, 101), "right eye": (247, 102), "nose": (226, 127), "mouth": (204, 141), "to": (248, 140)}
FILES = {"pnet": "det1", "rnet": "det2", "onet": "det3"}
PUBLISHED = "nets/kpzhang93__MTCNN_face_detection_alignment__code__codes__MTCNNv1__model__{}.prototxt"


@pytest.fixture(scope="module")
def texts(shared_folder: Path) -> dict[str, str]:
    """The nets as they were published."""
    with zipfile.ZipFile(shared_folder / "corpus" / "nets.zip") as archive:
        return {name: archive.read(PUBLISHED.format(file)).decode() for name, file in FILES.items()}


@pytest.fixture(scope="module")
def weights(texts: Mapping[str, str]) -> Weights:
    return read_weights(texts)


def read_weights(texts: Mapping[str, str]) -> Weights:
    """The weights that the package mtcnn brings along; importing it takes TensorFlow, reading its files does not."""
    try:
        files = importlib.metadata.files("mtcnn") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs the package mtcnn, which brings the weights along")
    joblib = pytest.importorskip("joblib", reason="needs joblib, in whose format the package mtcnn has weights")
    arrays = {name: joblib.load(file.locate()) for file in files for name in FILES if file.name == f"{name}.lz4"}
    return {name: convert_weights(arrays[name], texts[name]) for name in FILES}


def convert_weights(arrays: list[np.ndarray], text: str) -> dict[str, list[np.ndarray]]:
    """Convert weights of Keras, with pictures (batch, y, x, channels), to blobs of a transposed net.

    All axes are in the opposite order, and rows and columns are exchanged. Keras has the outputs in another order, with
    the probabilities last.
    """
    graph, remaining_arrays = caffejax.Net(text).graph, iter(arrays)
    layers = sorted((y for y in graph.layers if y.params), key=lambda layer: layer.name.endswith("-1"))
    blobs: dict[str, list[np.ndarray]] = {}
    for layer in layers:
        blobs[layer.name] = [next(remaining_arrays).T.reshape(p.spec.shape) for p in layer.params]
        bottom = graph.blobs[layer.bottoms[0]].shape
        if layer.type.name == "InnerProduct" and len(bottom) == 4:  # of Keras's (x, y, channels)
            columns = blobs[layer.name][0].reshape(-1, *bottom[2:], bottom[1])
            blobs[layer.name][0] = columns.transpose(0, 3, 1, 2).reshape(len(columns), -1)
    assert next(remaining_arrays, None) is None
    return blobs


@pytest.fixture(scope="module")
def nets(texts: Mapping[str, str], weights: Weights, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Frozen]:
    """The three nets, with weights that went through .caffemodel files."""
    folder = tmp_path_factory.mktemp("mtcnn")
    for name, text in texts.items():
        (folder / f"{name}.prototxt").write_text(text)
        write_caffemodel(folder / f"{name}.caffemodel", read_net(folder / f"{name}.prototxt"), weights[name])
    return {name: load_net(text, folder / f"{name}.caffemodel") for name, text in texts.items()}


def load_net(text: str, path: Path) -> Frozen:
    net = caffejax.Net(text, "TEST")
    return net.freeze(caffejax.load_weights(path, net.graph, Variables(*net.init(jax.random.key(0)))))


def test_weights_of_the_package_equal_the_published_ones(weights: Weights, shared_folder: Path) -> None:
    published = read_caffemodel(shared_folder / "golden" / "weights" / "det1.caffemodel")
    published = {name: blobs for name, blobs in published.items() if blobs}
    assert set(published) == set(weights["pnet"])
    for name, blobs in published.items():
        for actual, expected in zip(weights["pnet"][name], blobs, strict=True):
            np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("pictures", ["patches", "wide"])
def test_outputs_equal_caffes_recorded_outputs(texts: Mapping[str, str], shared_folder: Path, pictures: str) -> None:
    recorded = np.load(shared_folder / "golden" / "weights" / "det1.npz")
    blobs = load_net(texts["pnet"], shared_folder / "golden" / "weights" / "det1.caffemodel")(
        {"data": recorded[f"{pictures}/data"]}
    )
    for blob in ("prob1", "conv4-2"):
        np.testing.assert_allclose(blobs[blob], recorded[f"{pictures}/{blob}"], rtol=1e-4, atol=1e-5)


def test_the_face_in_a_photograph_is_found(nets: Mapping[str, Frozen]) -> None:
    faces = find_faces(nets, load_photograph())
    assert len(faces.scores) == 1
    assert faces.scores[0] > 0.99
    assert overlaps(faces.boxes[0], FACE, side_offset=1) > 0.7, faces.boxes[0]
    np.testing.assert_allclose(faces.landmarks[0], list(LANDMARKS.values()), atol=5)


def load_photograph() -> np.ndarray:
    """A photograph, 512 x 512 x 3, that scikit-image brings along."""
    data = pytest.importorskip("skimage.data", reason="needs scikit-image for its photograph")
    try:
        return np.asarray(data.astronaut())
    except (OSError, ImportError) as error:
        pytest.skip(f"scikit-image does not bring its photograph along: {error}")
