"""`Net.preprocess` gives what a data layer makes of pixels of any dtype; integers but uint8 are refused."""

from pathlib import Path
from typing import Any

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import CaffejaxError, DataError, GraphError, Net
from caffejax.core.schema.caffe_pb2 import BlobProto

PIXELS = np.random.default_rng(0).integers(0, 256, (2, 3, 8, 9), np.uint8)
MEAN = np.random.default_rng(1).uniform(90, 150, (3, 8, 9)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pixels")
    for i, image in enumerate(PIXELS):
        cv2.imwrite(str(path / f"{i}.png"), image.transpose(1, 2, 0))
    (path / "list.txt").write_text(f"{path}/0.png 0\n{path}/1.png 1\n")
    mean = BlobProto(num=1, channels=3, height=8, width=9, data=MEAN.ravel().tolist())
    (path / "mean.binaryproto").write_bytes(mean.SerializeToString())
    return path


def make_net(folder: Path, transform: str, phase: Any = "TEST") -> Net:
    return Net(
        f"""layer {{ name: "data" type: "ImageData" top: "data" top: "label" transform_param {{ {transform} }}
          image_data_param {{ source: "{folder}/list.txt" batch_size: 2 }} }}
        layer {{ name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param {{ kernel_size: 2 }} }}""",
        phase,
    )


TRANSFORMS = [
    "",
    "scale: 0.00390625",
    "mean_value: 104 mean_value: 117 mean_value: 123",
    "mean_value: 100 scale: 0.5 crop_size: 5",
    "mean_file: 'FOLDER/mean.binaryproto' scale: 2",
    "mean_file: 'FOLDER/mean.binaryproto' crop_size: 6 scale: 0.1",
]


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_preprocessed_pixels_equal_the_batch_of_the_data_layer(folder: Path, transform: str) -> None:
    net = make_net(folder, transform.replace("FOLDER", str(folder)))
    source = net.sources()["data"]
    batch = jax.tree.map(jnp.asarray, next(source))
    source.close()
    expected = np.asarray(net.graph.layers[0].transform_on_device(batch)[0])
    for pixels in (PIXELS, PIXELS.astype(np.int32), PIXELS.astype(np.float32), jnp.asarray(PIXELS, jnp.bfloat16)):
        result = net.preprocess(pixels)
        assert result.dtype == jnp.float32
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-4 + 0.6 * (pixels.dtype == jnp.bfloat16))
    np.testing.assert_allclose(jax.jit(net.preprocess)(PIXELS[0] / 1.0), expected[0], rtol=1e-5, atol=1e-4)
    once, _ = net.apply({}, {}, {"data": net.preprocess(PIXELS), "label": np.zeros(2)})
    twice, _ = net.apply({}, {}, {"data": net.preprocess(net.preprocess(PIXELS)), "label": np.zeros(2)})
    assert once["pool"].shape == net.graph.blobs["pool"].shape
    assert transform == "" or "crop" in transform or not np.allclose(once["pool"], twice["pool"])


def test_training_crops_in_the_center_and_pixels_of_the_crop_are_kept(folder: Path) -> None:
    transform = f"mean_file: '{folder}/mean.binaryproto' crop_size: 6 mirror: true"
    net = make_net(folder, transform, "TRAIN")
    expected = (PIXELS - MEAN)[..., 1:7, 1:7]
    np.testing.assert_allclose(net.preprocess(PIXELS), expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(net.preprocess(PIXELS[..., 1:7, 1:7]), expected, rtol=1e-5, atol=1e-4)


def test_the_gradient_of_pixels_is_the_scale(folder: Path) -> None:
    net = make_net(folder, "scale: 0.25 mean_value: 7")
    gradient = jax.grad(lambda x: net.preprocess(x).sum())(jnp.asarray(PIXELS, jnp.float32))
    np.testing.assert_array_equal(gradient, np.full(PIXELS.shape, 0.25))


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.uint16])
def test_integers_other_than_uint8_are_told_so(folder: Path, dtype: Any) -> None:
    net = make_net(folder, "scale: 0.5")
    with pytest.raises(CaffejaxError, match=r"layer 'data'.*dtype .*uint8.*net.preprocess"):
        net.apply({}, {}, {"data": PIXELS.astype(dtype), "label": np.zeros(2)})


@pytest.mark.parametrize(
    ("pixels", "name", "message"),
    [
        (PIXELS, "label", "not 'label'; in phase TEST the net has 'data'"),
        (PIXELS[0, 0], None, "pixels must have 4 axes, or 3 for one image, not 2"),
        (PIXELS[..., :4], None, r"\(2, 3, 8, 4\) are smaller than the crop, 5 x 5"),
        (PIXELS[:, :2], None, r"do not fit the mean of shape \(3, 1, 1\)"),
    ],
)
def test_invalid_pixels_are_refused(folder: Path, pixels: Any, name: Any, message: str) -> None:
    net = make_net(folder, "crop_size: 5 mean_value: 1 mean_value: 2 mean_value: 3")
    with pytest.raises((DataError, GraphError), match=message):
        net.preprocess(pixels, name)


def test_a_net_without_images_is_refused() -> None:
    net = Net('layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 } } }')
    with pytest.raises(GraphError, match="in phase TEST the net has none"):
        net.preprocess(PIXELS)
