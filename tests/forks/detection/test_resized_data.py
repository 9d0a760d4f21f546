"""Tests of Data and ImageData with SSD's resize_param and noise_param, beside OpenCV."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from caffejax.base.databases import write_lmdb
from caffejax.base.errors import DataError
from caffejax.core.schema.caffe_pb2 import BlobProto, Datum
from caffejax.tools.model_check.check import check_file

WARP = "resize_param { prob: 1 resize_mode: WARP height: 24 width: 32 interp_mode: LINEAR }"
FIT_SMALL = "resize_param { resize_mode: FIT_SMALL_SIZE height: 24 width: 32 interp_mode: AREA }"
FIT_LARGE = (
    "resize_param { resize_mode: FIT_LARGE_SIZE_AND_PAD height: 24 width: 32 pad_mode: CONSTANT pad_value: 7 "
    "pad_value: 8 pad_value: 9 interp_mode: NEAREST }"
)
IMAGE = np.random.default_rng(0).integers(0, 256, (40, 30, 3), np.uint8)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write IMAGE, which is higher than wide, to an LMDB and to a list."""
    folder = tmp_path_factory.mktemp("sources")
    cv2.imwrite(str(folder / "a.png"), IMAGE)
    (folder / "list.txt").write_text(f"{folder}/a.png 5\n")
    datum = Datum(data=(folder / "a.png").read_bytes(), encoded=True, label=5)
    write_lmdb(folder / "db", [(b"0", datum.SerializeToString())])
    return {"Data": folder / "db", "ImageData": folder / "list.txt"}


def layer_text(layer_type: str, source: Path, transform: str, batch_size: int = 1) -> str:
    param = "data_param { backend: LMDB" if layer_type == "Data" else "image_data_param {"
    return (
        f'layer {{ name: "d" type: "{layer_type}" top: "data" top: "label" transform_param {{ {transform} }} '
        f'{param} source: "{source}" batch_size: {batch_size} }} }}'
    )


def resize_by_rule(transform: str) -> np.ndarray:
    """Return IMAGE as SSD resizes it to 24 rows of 32 pixels."""
    if transform.startswith("resize_param { prob"):
        return cv2.resize(IMAGE, (32, 24), interpolation=cv2.INTER_LINEAR)
    if "SMALL" in transform:  # the width has 32 pixels, and the height what the proportions give
        return cv2.resize(IMAGE, (32, int(32 / (30 / 40))), interpolation=cv2.INTER_AREA)
    inner = cv2.resize(IMAGE, (18, 24), interpolation=cv2.INTER_NEAREST)
    canvas = np.tile(np.array([7, 8, 9], np.uint8), (24, 32, 1))
    canvas[:, 7:25] = inner
    return canvas


@pytest.mark.parametrize("resize", [WARP, FIT_SMALL, FIT_LARGE], ids=["warp", "fit_small", "fit_large"])
@pytest.mark.parametrize("layer_type", ["Data", "ImageData"])
def test_images_are_resized_then_changed_then_cropped(
    layer_type: str, resize: str, sources: dict[str, Path], open_source: Callable[..., Any]
) -> None:
    transform = f"{resize} noise_param {{ inverse: true }} crop_size: 21 mean_value: 104 scale: 0.5"
    text = layer_text(layer_type, sources[layer_type], transform)
    data, label = next(open_source(text, phase="TEST"))
    changed = 255 - resize_by_rule(resize)
    top, left = ((n - 21) // 2 for n in changed.shape[:2])
    crop = changed[top : top + 21, left : left + 21].astype(np.float32)
    np.testing.assert_allclose(np.asarray(data)[0], ((crop - 104) * 0.5).transpose(2, 0, 1))
    assert np.asarray(label).tolist() == [5]


@pytest.mark.parametrize("layer_type", ["Data", "ImageData"])
def test_a_mirrored_image_gets_the_mean_as_it_is(
    layer_type: str, sources: dict[str, Path], open_source: Callable[..., Any], tmp_path: Path
) -> None:
    mean = np.tile(np.arange(32, dtype=np.float32), (3, 24, 1))
    (tmp_path / "mean").write_bytes(
        BlobProto(num=1, channels=3, height=24, width=32, data=mean.ravel()).SerializeToString()
    )
    transform = f"{WARP} mirror: true mean_file: '{tmp_path}/mean'"
    data, _ = next(open_source(layer_text(layer_type, sources[layer_type], transform, 16), phase="TRAIN"))
    resized = resize_by_rule(WARP).transpose(2, 0, 1).astype(np.float32)
    plain, mirrored = resized - mean, resized[:, :, ::-1] - mean
    is_mirrored = [np.allclose(image, mirrored) for image in np.asarray(data)]
    assert 0 < sum(is_mirrored) < 16
    for image, flip in zip(np.asarray(data), is_mirrored, strict=True):
        np.testing.assert_allclose(image, mirrored if flip else plain)


def test_random_noise_depends_on_the_seed_and_the_example(
    sources: dict[str, Path], open_source: Callable[..., Any]
) -> None:
    noise = f"{WARP} noise_param {{ saltpepper: true saltpepper_param {{ fraction: 0.5 value: 255 }} }}"
    text = layer_text("ImageData", sources["ImageData"], noise, 2)
    first, again, other = (np.asarray(next(open_source(text, seed=seed))[0]) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first[0], first[1])


@pytest.mark.parametrize("layer_type", ["Data", "ImageData"])
@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ("resize_param { height: 32 }", "resize_param has height 32 and width 0"),
        (f"{WARP} {WARP}", "several resize_param"),
        ("noise_param { jpeg: 101 }", "noise_param.jpeg must be a quality of at most 100"),
        (f"{WARP} expand_param {{ prob: 1 }}", "transform_param.expand_param is not supported yet"),
        (f"{WARP} crop_size: 33", "33"),
    ],
)
def test_invalid_settings_are_refused(
    layer_type: str, transform: str, message: str, sources: dict[str, Path], tmp_path: Path
) -> None:
    """All but the size of the crop are refused where the source is absent, too."""
    found = sources[layer_type], *([tmp_path / "gone"] if message != "33" else [])
    for source in found:
        (tmp_path / "net.prototxt").write_text(layer_text(layer_type, source, transform))
        phase = check_file(tmp_path / "net.prototxt").phases[0]
        assert phase.outcome == "fails"
        assert any(message in finding.message for finding in phase.findings), phase.findings


def test_noise_needs_color(open_source: Callable[..., Any], tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "gray.png"), IMAGE[:, :, 0])
    (tmp_path / "list.txt").write_text(f"{tmp_path}/gray.png 0\n")
    text = layer_text("ImageData", tmp_path / "list.txt", "noise_param { inverse: true }")
    with pytest.raises(DataError, match=r"gray.png' has 1 channels of uint8.*set force_color"):
        open_source(text.replace("image_data_param {", "image_data_param { is_color: false"))
