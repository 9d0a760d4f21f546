"""The first stage of MTCNN, with the weights that its authors trained, finds the face in a photograph.

Weights of the other two stages are not among the reference files; R-Net and O-Net are left out.
"""

import os
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import caffejax
from caffejax.layers.detection.boxes import overlaps, unsuppressed
from caffejax.net import Variables

pytestmark = pytest.mark.long

FACE = np.array([176.0, 65, 272, 188])  # by eye: x1, y1, x2, y2
SMALLEST, SHRINK = 40, 0.709  # pixels of the smallest face, and from one picture of the pyramid to the next
SCORE, WITHIN, ACROSS = 0.6, 0.5, 0.7  # least probability; overlaps that suppress, within a picture and at the end
# of others, so not in the repository: beside it, or where the variable says
WEIGHTS = Path(os.environ.get("MTCNN_WEIGHTS", Path(__file__).parents[3] / "shared" / "golden" / "weights"))
STRIDE, WINDOW = 2, 12  # of P-Net, a fully convolutional net


class PNet:
    """P-Net as a function of pictures of any size: (probabilities, adjustments of boxes)."""

    def __init__(self, folder: Path) -> None:
        self.text = re.sub(r"input_dim: \d+", "", (folder / "det1.prototxt").read_text())
        net = self.of_shape((1, 3, WINDOW, WINDOW))
        started = Variables(*net.init(jax.random.key(0)))
        self.variables = caffejax.load_weights(net.graph, started, folder / "det1.caffemodel")

    def of_shape(self, shape: tuple[int, ...]) -> caffejax.Net:
        return caffejax.Net(self.text + "".join(f"input_dim: {n}\n" for n in shape))

    def __call__(self, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        net = self.of_shape(data.shape)
        blobs, _ = net.jit(net.forward)(*self.variables, {"data": data})
        return np.asarray(blobs["prob1"]), np.asarray(blobs["conv4-2"])


@pytest.fixture(scope="module")
def p_net() -> PNet:
    if not (WEIGHTS / "det1.caffemodel").is_file():
        pytest.skip(f"needs MTCNN's weights in {WEIGHTS} (or $MTCNN_WEIGHTS), which are absent")
    return PNet(WEIGHTS)


def test_recorded_pictures(p_net: PNet) -> None:
    recorded = np.load(WEIGHTS / "det1.npz")
    for pictures in ("patches", "wide"):
        for found, blob in zip(p_net(recorded[f"{pictures}/data"]), ("prob1", "conv4-2"), strict=True):
            np.testing.assert_allclose(found, recorded[f"{pictures}/{blob}"], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_best_boxes_are_the_face(p_net: PNet) -> None:
    picture = astronaut()
    scale, found = WINDOW / SMALLEST, []
    while min(picture.shape[:2]) * scale >= WINDOW:
        found.append(faces(p_net, picture, scale))
        scale *= SHRINK
    assert len(found) == 8
    scores, boxes, adjustments = best(*(np.concatenate(a) for a in zip(*found, strict=True)), limit=ACROSS)
    boxes = boxes + adjustments * np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    fits = np.asarray(overlaps(jnp.asarray(boxes), jnp.asarray(FACE)))
    assert scores[0] > 0.99
    assert fits[0] > 0.6, boxes[0]
    middles = (boxes[:5, :2] + boxes[:5, 2:]) / 2
    inside = np.all((middles > FACE[:2]) & (middles < FACE[2:]), axis=1)
    assert np.count_nonzero(inside) >= 4, middles  # one stage alone is sometimes wrong


def astronaut() -> np.ndarray:
    """A photograph, 512 x 512 x 3, that scikit-image brings along."""
    data = pytest.importorskip("skimage.data", reason="needs scikit-image for its photograph")
    try:
        return np.asarray(data.astronaut(), np.float32)
    except (OSError, ImportError) as error:
        pytest.skip(f"scikit-image does not bring its photograph along: {error}")


def faces(p_net: PNet, picture: np.ndarray, scale: float) -> tuple[np.ndarray, ...]:
    """Scores, boxes and adjustments of the windows that may be faces, in the picture at a scale."""
    from skimage.transform import resize

    size = [int(np.ceil(n * scale)) for n in picture.shape[:2]]
    small = (resize(picture, size, anti_aliasing=True) - 127.5) / 128
    # the authors' program works by columns: the net has learned pictures with their axes exchanged
    probability, adjustment = p_net(np.float32(small.transpose(2, 1, 0)[None]))
    columns, rows = np.nonzero(probability[0, 1] > SCORE)
    corner = STRIDE * np.stack([columns, rows], axis=1)
    boxes = np.concatenate([corner + 1, corner + WINDOW], axis=1) / scale
    return best(probability[0, 1, columns, rows], boxes, adjustment[0][:, columns, rows].T, limit=WITHIN)


def best(scores: np.ndarray, boxes: np.ndarray, adjustments: np.ndarray, limit: float) -> tuple[np.ndarray, ...]:
    """Those that overlap no better one by more than the limit, the best first."""
    order = np.argsort(-scores, kind="stable")
    arrays: list[Any] = [a[order] for a in (scores, boxes, adjustments)]
    if not len(order):
        return tuple(arrays)
    kept = np.asarray(unsuppressed(jnp.asarray(arrays[1]), jnp.ones(len(order), bool), limit, plus=1))
    return tuple(a[kept] for a in arrays)
