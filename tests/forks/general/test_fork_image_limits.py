"""The limit of pixels that are decoded holds in data layers and tools of forks."""

import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from caffejax.base.errors import DataError
from caffejax.cli import main
from caffejax.forks.detection.data.annotated_datum import StorageOptions, encode_annotated_datum, write_annotated

DATA_LAYERS = {
    "ImageSegData": 'image_data_param { source: "pairs" batch_size: 1 label_type: PIXEL }',
    "DenseImageData": 'dense_image_data_param { source: "pairs" batch_size: 1 }',
    "AnnotatedData": 'data_param { source: "boxes" backend: LMDB batch_size: 1 } annotated_data_param { }',
    "VideoData": 'video_data_param { source: "clips" batch_size: 1 use_image: true new_length: 1 sampling_rate: 1 }',
    "VideoData, segments": 'video_data_param { source: "segments" batch_size: 1 new_length: 1 num_segments: 1 '
    "modality: RGB }",
    "VideoData, a film": 'video_data_param { source: "films" batch_size: 1 use_image: false new_length: 1 '
    "sampling_rate: 1 }",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """Sources of every kind with one image of 40 x 50."""
    path: Path = tmp_path_factory.mktemp("limits")
    pixels = np.zeros((40, 50, 3), np.uint8)
    (path / "clip").mkdir()
    for name in ("im.png", "clip/000001.jpg", "clip/image_0002.jpg"):
        cv2.imwrite(str(path / name), pixels)
    (path / "images").write_text("im.png 3\n")
    (path / "pairs").write_text("im.png im.png\n")
    (path / "clips").write_text("clip 1 0\n")
    (path / "segments").write_text("clip 2 0\n")
    write_annotated(path / "boxes", [(pixels, np.zeros((0, 7)))])
    writer = cv2.VideoWriter(str(path / "film.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 10, (50, 40))
    for _ in range(3):
        writer.write(pixels)
    writer.release()
    (path / "films").write_text("film.avi 0 0\n")
    return path


@pytest.mark.parametrize("name", DATA_LAYERS)
def test_data_layers_apply_the_pixel_limit(
    name: str, folder: Path, open_source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    text = f'layer {{ name: "d" type: "{name.partition(",")[0]}" top: "data" top: "label" {DATA_LAYERS[name]} }}'
    next(open_source(text, max_image_pixels=2000))
    with pytest.raises(DataError) as exc_info:
        next(open_source(text, max_image_pixels=1999))
    message = str(exc_info.value)
    assert "layer 'd'" in message
    assert "has 2000 pixels (40x50, HxW), and at most 1999 are decoded" in message
    assert "raise max_image_pixels (--max_image_pixels)" in message
    assert re.search(r"im\.png|^boxes: .*record '0|00001\.jpg|image_0002|film\.avi", message)


def test_convert_annoset_applies_the_pixel_limit(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(["convert_annoset", "./", "images", str(tmp_path / "out"), "--max_image_pixels=1999"]) == 1
    output = capfd.readouterr()
    assert "at most 1999 are decoded" in " ".join((output.err + output.out).split())
    assert "Traceback" not in output.err
    assert not (tmp_path / "out").exists()


def test_images_are_not_enlarged_beyond_the_pixel_limit(folder: Path) -> None:
    options = StorageOptions(height=80, width=60, max_pixels=4000)
    with pytest.raises(DataError, match="height 80 and width 60: that is more than max_image_pixels"):
        encode_annotated_datum(str(folder / "im.png"), 1, options)
