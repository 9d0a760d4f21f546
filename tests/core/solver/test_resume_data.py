"""Resuming within several kinds of data at once gives the same parameters, bit for bit."""

from pathlib import Path

import cv2
import h5py
import jax
import numpy as np
import pytest

from caffejax import Solver
from caffejax.base.databases import write_leveldb
from caffejax.core.schema import caffe_pb2

NET = """
layer { name: "files" type: "ImageData" top: "a" top: "label" transform_param { crop_size: 6 mirror: true }
  image_data_param { source: "list.txt" batch_size: 3 shuffle: true rand_skip: 4 is_color: false } }
layer { name: "db" type: "Data" top: "b" transform_param { crop_size: 6 mirror: true }
  data_param { source: "db" batch_size: 3 backend: LEVELDB rand_skip: 3 } }
layer { name: "db2" type: "Data" top: "c" transform_param { crop_size: 6 }
  data_param { source: "db" batch_size: 3 } }
layer { name: "h5" type: "HDF5Data" top: "d" hdf5_data_param { source: "h5.txt" batch_size: 3 shuffle: true } }
layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "b" bottom: "c" bottom: "d" top: "sum"
  eltwise_param { coeff: 1e-2 coeff: 1e-2 coeff: 1e-2 coeff: 1 } }
layer { name: "ip" type: "InnerProduct" bottom: "sum" top: "ip"
  inner_product_param { num_output: 11 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = """
net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 iter_size: 2 snapshot_prefix: "x"
solver_mode: CPU random_seed: 4
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with 11 images (one invalid), 13 records (one invalid) and 7 + 5 rows."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for i in range(11):
        cv2.imwrite(f"{i}.png", rng.integers(0, 256, (8, 8), np.uint8))
    Path("5.png").write_bytes(b"no image")
    Path("list.txt").write_text("".join(f"{i}.png {i}\n" for i in range(11)))
    images = rng.integers(0, 256, (13, 1, 9, 9), np.uint8)
    datums = [caffe_pb2.Datum(channels=1, height=9, width=9, data=image.tobytes()) for image in images]
    datums[7].ClearField("data")
    write_leveldb("db", ((b"%03d" % i, datum.SerializeToString()) for i, datum in enumerate(datums)))
    for name, rows in ("one.h5", 7), ("two.h5", 5):
        with h5py.File(name, "w") as file:
            file["d"] = rng.normal(size=(rows, 1, 6, 6))
    Path("h5.txt").write_text("one.h5\ntwo.h5\n")
    Path("net.prototxt").write_text(NET)
    Path("solver.prototxt").write_text(SOLVER)
    return tmp_path


@pytest.mark.parametrize("workers", [0, 1])
def test_resumes_bit_for_bit_from_a_checkpoint(folder: Path, workers: int) -> None:
    def make_solver(workers: int) -> Solver:
        return Solver("solver.prototxt", skip_bad=True, workers=workers)

    uninterrupted = make_solver(0)
    uninterrupted.step(5)
    uninterrupted.snapshot()
    uninterrupted.step(6)  # more than a round of every source
    resumed = make_solver(workers)
    resumed.restore("x.orbax")
    resumed.step(6)
    for expected, actual in zip(
        jax.tree.leaves(uninterrupted.variables), jax.tree.leaves(resumed.variables), strict=True
    ):
        np.testing.assert_array_equal(expected, actual)
    assert uninterrupted.loader.get_state() == resumed.loader.get_state()
    uninterrupted.close()
    resumed.close()
