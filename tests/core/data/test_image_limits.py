"""Images whose header states too many pixels are refused by every reader."""

import random
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from caffejax import pycaffe as caffe
from caffejax.base.config import MAX_IMAGE_PIXELS
from caffejax.base.databases import write_lmdb
from caffejax.base.errors import CaffejaxError, DataError
from caffejax.cli import main
from caffejax.core.data.image_decoding import BadImageError, decode_image, read_image_size
from caffejax.core.schema import caffe_pb2

FORMATS = ["png", "jpg", "bmp", "gif", "webp", "tiff", "jp2", "avif", "pbm", "pgm", "ppm", "pam", "pfm", "ras", "hdr"]
HEIGHT, WIDTH = 37, 53


def encode_image(format_name: str, height: int = HEIGHT, width: int = WIDTH) -> bytes:
    """A random image; skips where this OpenCV cannot write the kind."""
    pixels: np.ndarray = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    if format_name in ("pgm", "pbm"):
        pixels = pixels[..., 0]
    if format_name in ("pfm", "hdr"):
        pixels = pixels.astype(np.float32) / 255
    try:
        return bytes(cv2.imencode(f".{format_name}", pixels)[1])
    except cv2.error:
        pytest.skip(f"this OpenCV writes no {format_name}")


def make_compressed_png(height: int, width: int) -> bytes:
    """Return a valid PNG of one grey, which unpacks to a thousand times its size."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes((width + 1) * height), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_header_states_the_encoded_size(subtests: Any) -> None:
    for format_name in FORMATS:
        with subtests.test(format=format_name):
            for height, width in ((HEIGHT, WIDTH), (40, 32), (300, 33)):
                data = encode_image(format_name, height, width)
                assert read_image_size(data) == (height, width)
                assert read_image_size(data + b"what comes after it") == (height, width)


@pytest.mark.parametrize("byte_order", ["II", "MM"])
@pytest.mark.parametrize("is_big_tiff", [False, True])
def test_sizes_of_all_forms_of_tiff_are_read(byte_order: str, is_big_tiff: bool) -> None:
    order, size_code, field_type = (
        "<" if byte_order == "II" else ">",
        "Q" if is_big_tiff else "I",
        16 if is_big_tiff else 4,
    )
    start = (43, 8, 0, 16) if is_big_tiff else (42, 8)
    entries = [
        struct.pack(f"{order}HH{size_code}{size_code}", tag, field_type, 1, size)
        for tag, size in ((256, 70000), (257, 80000))
    ]
    file = byte_order.encode() + struct.pack(
        f"{order}{'HHHQ' if is_big_tiff else 'HI'}{'Q' if is_big_tiff else 'H'}", *start, 2
    )
    assert read_image_size(file + b"".join(entries)) == (80000, 70000)


@pytest.mark.long
@pytest.mark.parametrize("format_name", FORMATS)
def test_opencv_never_decodes_more_than_the_header_states(format_name: str) -> None:
    """Whatever is changed: what is decoded at all has the size that was checked."""
    intact, rng, num_decoded = encode_image(format_name), random.Random(format_name), 0
    for _ in range(300):
        data = bytearray(intact)
        for _ in range(rng.choice([1, 1, 2, 3])):
            position = rng.randrange(min(len(data), rng.choice([16, 64, 200, len(data)])))
            change = rng.random()
            if change < 0.6:
                data[position] = rng.choice([0, 1, 255, 128, rng.randrange(256)])
            elif change < 0.8:
                del data[position]
            else:
                data.insert(position, rng.randrange(256))
        try:
            image = decode_image(bytes(data), cv2.IMREAD_COLOR, 10**6)
        except BadImageError:
            continue
        num_decoded += 1
        assert image.shape[1:] == read_image_size(bytes(data))
    assert num_decoded


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (b"P6\n#\r90000 90000\n5 5\n255\n", (90000, 90000)),  # a comment ends with \r, too
        (b"P6 5#90000\n7 255\n", None),
        (b"P7\nWIDTH 5\nHEIGHT 5\n#ENDHDR\n \x0bWIDTH 90000\nENDHDR\n", (5, 90000)),
        (b"#?RADIANCE\n-Y 1 +X 1\nFORMAT=32-bit_rle_rgbe\n\n-Y 90000  +X90000\n", (90000, 90000)),
        (b"\xff\xd8\xff\xe0\0\x04\0\0junk\xff\xff\xc0\0\x0b\x08\xff\xff\xff\xfe", (65535, 65534)),
        (b"\xff\xd8\xff\xd9", None),
        (b"BM" + bytes(12) + struct.pack("<Iii", 40, -7, -9), (9, 7)),
        (make_compressed_png(5, 6), (5, 6)),
        (make_compressed_png(5, 6)[:-12], (5, 6)),
        (make_compressed_png(5, 6)[:-14], None),  # a chunk claims more than there is
        (b"", None),
        (b"no image at all", None),
        *(
            (encoded_start, None)
            for encoded_start in (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\0", b"GIF89a", b"BM")
        ),
    ],
)
def test_sizes_are_read_from_unusual_headers(data: bytes, size: tuple[int, int] | None) -> None:
    assert read_image_size(data) == size


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """Sources of every kind with one image of 40 x 50, and the nets that read them."""
    path: Path = tmp_path_factory.mktemp("limits")
    image = make_compressed_png(40, 50)
    (path / "im.png").write_bytes(image)
    (path / "images").write_text("im.png 3\n")
    (path / "windows").write_text("# 0\nim.png\n3\n40\n50\n1\n1 1 2 2 20 20\n")
    write_lmdb(path / "db", [(b"0", caffe_pb2.Datum(encoded=True, data=image, label=1).SerializeToString())])
    return path


DATA_LAYERS = {
    "Data": 'data_param { source: "db" backend: LMDB batch_size: 1 }',
    "ImageData": 'image_data_param { source: "images" batch_size: 1 }',
    "WindowData": 'window_data_param { source: "windows" batch_size: 1 fg_fraction: 1 } '
    "transform_param { crop_size: 8 }",
}


@pytest.mark.parametrize("name", DATA_LAYERS)
def test_every_layer_that_reads_images_applies_the_pixel_limit(
    name: str, folder: Path, open_source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    text = f'layer {{ name: "d" type: "{name}" top: "data" top: "label" {DATA_LAYERS[name]} }}'
    next(open_source(text, max_image_pixels=2000))
    with pytest.raises(DataError) as exc_info:
        next(open_source(text, max_image_pixels=1999))
    message = str(exc_info.value)
    assert "layer 'd'" in message
    assert "has 2000 pixels (40x50, HxW), and at most 1999 are decoded" in message
    assert "raise max_image_pixels (--max_image_pixels)" in message
    assert re.search(r"im\.png|^db: .*record '0'", message)


COMMANDS = {
    "convert_imageset": "convert_imageset ./ images {out}",
    "compute_image_mean": "compute_image_mean db {out}",
    "test": "test --model=net.prototxt --weights=net.prototxt",
    "train": "train --solver=solver.prototxt",
    "check": "check net.prototxt",
    "classify": "classify im.png {out} --mean_file= --model_def=net.prototxt --pretrained_model=net.prototxt",
}


@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=pytest.mark.long) if name == "check" else name for name in COMMANDS]
)
def test_commands_apply_the_pixel_limit(
    command: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    net = f'layer {{ name: "d" type: "ImageData" top: "data" top: "label" {DATA_LAYERS["ImageData"]} }}'
    (folder / "net.prototxt").write_text(net)
    (folder / "solver.prototxt").write_text('net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" snapshot_prefix: "s"')
    out = tmp_path / "out"
    assert main([*COMMANDS[command].format(out=out).split(), "--max_image_pixels=1999"]) == 1
    output = capfd.readouterr()
    assert "at most 1999 are decoded" in " ".join((output.err + output.out).split())
    assert "Traceback" not in output.err
    assert not out.exists()
    caffe.set_limits(max_image_pixels=MAX_IMAGE_PIXELS)


def test_pycaffe_applies_the_pixel_limit(folder: Path) -> None:
    try:
        caffe.set_limits(max_image_pixels=1999)
        with pytest.raises(DataError, match=r"im\.png: its image has 2000 pixels"):
            caffe.io.load_image(folder / "im.png")
        with pytest.raises(CaffejaxError, match="no limit 'max_pixels'"):
            caffe.set_limits(max_pixels=3)
    finally:
        caffe.set_limits(max_image_pixels=MAX_IMAGE_PIXELS)
    assert caffe.io.load_image(folder / "im.png").shape == (40, 50, 3)


def test_a_decompression_bomb_is_refused_by_default() -> None:
    """Nothing is decoded: these bytes hold no pixels."""
    png = make_compressed_png(1, 1).replace(struct.pack(">II", 1, 1), struct.pack(">II", 30000, 30000))
    with pytest.raises(BadImageError, match=f"has 900000000 pixels .* at most {MAX_IMAGE_PIXELS} are decoded"):
        decode_image(png)
