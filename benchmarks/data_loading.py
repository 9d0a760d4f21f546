"""Compare reading an LMDB for training: caffejax's Data layer and PyTorch's DataLoader, in the same run.

    python benchmarks/data_loading.py

Two databases are made in a temporary folder: raw 32x32 color datums (CIFAR's size), read with crop 28, mirror and
mean; and 256x256 JPEG datums, read with crop 224, mirror and mean. PyTorch's side reads the same LMDB with the same
bindings, decodes with OpenCV, and is tried with 0, 1 and 2 workers: the best counts. The bare decode rate is
cv2.imdecode of every image, in as many threads as there are cores. Needs torch.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import lmdb
import numpy as np
import torch

from caffejax import Net, caffe_pb2, tune_process, write_lmdb
from caffejax.base.host_memory import count_available_cores

MEAN = (104.0, 117.0, 123.0)


def draw_photographs(count: int, size: int) -> Iterator[np.ndarray]:
    """Yield images (H, W, 3) as smooth as photographs, so that JPEG decoding takes as long as usual."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        coarse_image = rng.integers(0, 256, (size // 16, size // 16, 3), np.uint8)
        noise = rng.integers(-24, 25, (size, size, 3))
        image = cv2.resize(coarse_image, (size, size), interpolation=cv2.INTER_CUBIC)
        yield np.clip(image + noise, 0, 255).astype(np.uint8)


def make_datum(image: np.ndarray, label: int, encoded: bool) -> bytes:
    """Make a Datum of an image (H, W, 3)."""
    message = caffe_pb2.Datum(channels=3, height=image.shape[0], width=image.shape[1], label=label, encoded=encoded)
    message.data = cv2.imencode(".jpg", image)[1].tobytes() if encoded else image.transpose(2, 0, 1).tobytes()
    return message.SerializeToString()


class TorchSet(torch.utils.data.Dataset):
    """The LMDB as a map-style dataset."""

    def __init__(self, path: Path, crop: int) -> None:
        self.path, self.crop, self.txn = str(path), crop, None
        with lmdb.open(self.path, readonly=True, lock=False) as environment, environment.begin() as txn:
            self.keys = list(txn.cursor().iternext(values=False))
        self.mean = np.array(MEAN, np.float32).reshape(3, 1, 1)
        self.random = np.random.default_rng()

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.txn is None:
            self.txn = lmdb.open(self.path, readonly=True, lock=False).begin(buffers=True)
        message = caffe_pb2.Datum.FromString(self.txn.get(self.keys[index]))
        if message.encoded:
            image = cv2.imdecode(np.frombuffer(message.data, np.uint8), cv2.IMREAD_UNCHANGED).transpose(2, 0, 1)
        else:
            image = np.frombuffer(message.data, np.uint8).reshape(message.channels, message.height, message.width)
        row, column = self.random.integers(0, image.shape[1] - self.crop + 1, 2)
        image = image[:, row : row + self.crop, column : column + self.crop]
        if self.random.integers(2):
            image = image[:, :, ::-1]
        return torch.from_numpy(image.astype(np.float32) - self.mean), message.label


def measure_torch_rate(path: Path, crop: int, batch: int, workers: int, images: int) -> float:
    """Return images per second after the workers have started."""
    loader = torch.utils.data.DataLoader(
        TorchSet(path, crop), batch, num_workers=workers, drop_last=True, persistent_workers=workers > 0
    )
    next(iter(loader))
    return measure_rate(lambda: iter(loader), batch, images)


def measure_caffejax_rate(path: Path, crop: int, batch: int, images: int) -> float:
    """Return images per second of the Data layer's source, in the form that is sent to the device."""
    net = Net(
        f"""layer {{ name: "d" type: "Data" top: "data" top: "label"
            transform_param {{ crop_size: {crop} mirror: true {" ".join(f"mean_value: {m}" for m in MEAN)} }}
            data_param {{ source: "{path}" batch_size: {batch} backend: LMDB prefetch: 4 }} }}""",
        "TRAIN",
    )
    (source,) = net.sources().values()
    next(source)
    try:
        return measure_rate(lambda: source, batch, images)
    finally:
        source.close()


def measure_rate(make_iterator: Callable[[], Iterator[object]], batch: int, images: int) -> float:
    """Return images per second over some batches."""
    start_time, images_read, iterator = time.perf_counter(), 0, make_iterator()
    while images_read < images:
        try:
            next(iterator)
        except StopIteration:
            iterator = make_iterator()
            continue
        images_read += batch
    return images_read / (time.perf_counter() - start_time)


def measure_decode_rate(path: Path, images: int) -> float:
    """Return images per second of decoding alone, on all cores."""
    with lmdb.open(str(path), readonly=True, lock=False) as environment, environment.begin() as txn:
        data = [np.frombuffer(caffe_pb2.Datum.FromString(v).data, np.uint8) for _, v in txn.cursor()]
    encoded_images = (data * (images // len(data) + 1))[:images]
    start = time.perf_counter()
    with ThreadPoolExecutor(count_available_cores()) as pool:
        for _ in pool.map(lambda d: cv2.imdecode(d, cv2.IMREAD_UNCHANGED), encoded_images, chunksize=16):
            pass
    return images / (time.perf_counter() - start)


def compare(name: str, path: Path, crop: int, batch: int, images: int, rounds: int, encoded: bool) -> None:
    """Alternate the two libraries; print medians and ratios."""
    rates: dict[str, list[float]] = {}
    for _ in range(rounds):
        rates.setdefault("caffejax", []).append(measure_caffejax_rate(path, crop, batch, images))
        for workers in (0, 1, 2):
            rates.setdefault(f"torch, {workers} workers", []).append(
                measure_torch_rate(path, crop, batch, workers, images)
            )
        if encoded:
            rates.setdefault("bare decode", []).append(measure_decode_rate(path, images))
    medians = {side: statistics.median(values) for side, values in rates.items()}
    best_torch_rate = max(value for side, value in medians.items() if side.startswith("torch"))
    print(f"\n{name}, batch {batch}: images per second, median of {rounds} (ratio to the best of torch)")
    for side, value in medians.items():
        print(f"  {side:18} {value:9.0f}   {value / best_torch_rate:5.2f}")
    if encoded:
        print(f"  share of the bare decode rate: {medians['caffejax'] / medians['bare decode']:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--raw", type=int, default=40000, help="raw images to read each time")
    parser.add_argument("--jpeg", type=int, default=4000, help="JPEG images to read each time")
    options = parser.parse_args()
    tune_process()
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as folder:
        for name, size, crop, batch, images, encoded in (
            ("raw 32x32", 32, 28, 100, options.raw, False),
            ("JPEG 256x256", 256, 224, 32, options.jpeg, True),
        ):
            path = Path(folder) / name.replace(" ", "_")
            records = (
                make_datum(image, n % 10, encoded)
                for n, image in enumerate(draw_photographs(min(images, 2000 if encoded else 20000), size))
            )
            write_lmdb(path, ((b"%08d" % n, value) for n, value in enumerate(records)))
            compare(name, path, crop, batch, images, options.rounds, encoded)


if __name__ == "__main__":
    main()
