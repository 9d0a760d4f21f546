"""How fast the host reads a net's data, in plans."""

import json
import re
import time
from pathlib import Path

import cv2
import h5py
import jax
import numpy as np
import pytest

from caffejax import Net, caffe_pb2, write_leveldb, write_lmdb
from caffejax.base.host_memory import count_available_cores
from caffejax.cli import main
from caffejax.core.data.prefetch import Batch, Pipeline
from caffejax.tools.planning import data_rate, estimate_data_rate, planner

SIZE = 32  # pixels


@pytest.fixture(autouse=True)
def use_cpu_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile for this machine instead of the target, and measure for a shorter time."""
    monkeypatch.setattr(planner, "get_devices", lambda target: jax.devices()[:1])
    monkeypatch.setattr("caffejax.cli.compile_for_absent_devices", lambda: None)
    monkeypatch.setattr(data_rate, "_MIN_SECONDS", 0.05)


def make_datum(n: int, *, encoded: bool) -> bytes:
    image = np.random.default_rng(n).integers(0, 256, (SIZE, SIZE, 3), np.uint8)
    datum = caffe_pb2.Datum(channels=3, height=SIZE, width=SIZE, label=n % 5, encoded=encoded)
    datum.data = cv2.imencode(".jpg", image)[1].tobytes() if encoded else image.transpose(2, 0, 1).tobytes()
    return datum.SerializeToString()


def make_net(tmp_path: Path, layer_type: str, param: str) -> Path:
    path = tmp_path / "net.prototxt"
    path.write_text(
        f"""layer {{ name: "images" type: "{layer_type}" top: "data" top: "label" {param} }}
        layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
          inner_product_param {{ num_output: 5 weight_filler {{ type: "xavier" }} }} }}
        layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}"""
    )
    return path


def write_data(tmp_path: Path, kind: str) -> tuple[str, str]:
    """Write 10 images. Return the type and the settings of a layer that reads them in batches of 4."""
    source = tmp_path / "data"
    if kind in ("lmdb", "jpeg_lmdb", "leveldb"):
        records = [(b"%02d" % n, make_datum(n, encoded=kind == "jpeg_lmdb")) for n in range(10)]
        (write_leveldb if kind == "leveldb" else write_lmdb)(source, records)
        backend = "LEVELDB" if kind == "leveldb" else "LMDB"
        return "Data", f'data_param {{ source: "{source}" batch_size: 4 backend: {backend} }}'
    if kind == "images":
        cv2.imwrite(str(tmp_path / "a.jpg"), np.full((SIZE, SIZE, 3), 128, np.uint8))
        source.write_text("a.jpg 1\na.jpg 2\n")
        return "ImageData", f'image_data_param {{ source: "{source}" root_folder: "{tmp_path}/" batch_size: 4 }}'
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data"], file["label"] = np.ones((10, 3, SIZE, SIZE), np.float32), np.ones(10, np.float32)
    source.write_text("a.h5\n")
    return "HDF5Data", f'hdf5_data_param {{ source: "{source}" batch_size: 4 }}'


def run_plan(capsys: pytest.CaptureFixture[str], net: Path, *flags: str) -> str:
    assert main(["plan", str(net), "--target=tpu:v5e:1", "--largest=none", *flags]) == 0
    output = capsys.readouterr()
    assert "Traceback" not in output.err
    return output.out


@pytest.mark.parametrize("kind", ["lmdb", "jpeg_lmdb", "leveldb", "images", "hdf5"])
def test_the_rate_of_each_source_is_measured(tmp_path: Path, kind: str) -> None:
    rate = estimate_data_rate(Net(make_net(tmp_path, *write_data(tmp_path, kind)), "TRAIN"))
    assert rate is not None
    assert rate.examples_per_second is not None
    assert 10 < rate.examples_per_second < 1e7
    assert (rate.is_measured, rate.cores, rate.problem) == (True, count_available_cores(), None)


@pytest.mark.parametrize(("num_threads", "depth"), [(1, 4), (3, 4), (8, 2)])
def test_the_measurement_agrees_with_a_source_of_known_speed(
    monkeypatch: pytest.MonkeyPatch, num_threads: int, depth: int
) -> None:
    """Each of the threads reads a batch in 20 ms, and more if the machine is busy."""

    class SlowBatches:
        tops = (jax.ShapeDtypeStruct((1,), np.float32),)
        batch_size, num_examples = 1, None

        def __init__(self) -> None:
            self.num_threads = num_threads
            self.num_closed = 0

        def read(self, start: int) -> Batch:
            time.sleep(0.02)
            return Batch((np.zeros(1, np.float32),))

        def checksum(self) -> int:
            return 0

        def close(self) -> None:
            self.num_closed += 1

    monkeypatch.setattr(data_rate, "_MIN_SECONDS", 0.2)
    batches = SlowBatches()
    seconds = data_rate._measure_seconds([Pipeline(batches, depth)])
    expected_seconds = 0.02 / min(num_threads, depth)
    assert 0.85 * expected_seconds < seconds < 4 * expected_seconds
    assert batches.num_closed == 1


def test_the_report_compares_the_host_with_the_net(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    net = make_net(tmp_path, *write_data(tmp_path, "jpeg_lmdb"))
    report = json.loads(run_plan(capsys, net, "--json"))
    assert report["data"]["is_measured"]
    assert report["data"]["examples_per_second"] > 10
    assert report["data"]["problem"] is None
    for seconds, waits in ((0.5, True), (1e-12, False)):
        monkeypatch.setattr(data_rate, "_measure_seconds", lambda pipelines, seconds=seconds: seconds)
        text = run_plan(capsys, net)
        match = re.search(
            r"this host feeds ([\d,]+) examples per second \(measured, \d+ cores?\);.* up to ([\d,]+)", text
        )
        assert match is not None
        assert float(match[1].replace(",", "")) == pytest.approx(4 / seconds)
        assert f"{match[2]} examples per second on all devices" in text
        assert ("--workers" in text) == waits


def test_a_record_that_cannot_be_read_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layer_type, param = write_data(tmp_path, "lmdb")
    bad_source = tmp_path / "bad"
    write_lmdb(bad_source, [(b"0", make_datum(0, encoded=True)), (b"1", b"no datum")])
    net = make_net(tmp_path, layer_type, param.replace(str(tmp_path / "data"), str(bad_source)))
    (line,) = [line for line in run_plan(capsys, net).splitlines() if line.startswith("data ")]
    assert "cannot be read" in line
    assert "record '1'" in line
    report = json.loads(run_plan(capsys, net, "--json"))
    assert report["data"]["examples_per_second"] is None
    assert "record '1'" in report["data"]["problem"]


def test_the_rate_of_absent_data_is_an_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    param = 'data_param { source: "absent" batch_size: 4 backend: LMDB prefetch: 1 } transform_param { crop_size: 64 }'
    net = make_net(tmp_path, "Data", param)
    solver = tmp_path / "solver.prototxt"
    solver.write_text('net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1')
    for model in (net, solver):
        assert "a guess for JPEGs, as the data are absent" in run_plan(capsys, model)
        report = json.loads(run_plan(capsys, model, "--json"))
        assert not report["data"]["is_measured"]
        # one thread, and a sixteenth of the pixels of 256x256
        assert report["data"]["examples_per_second"] == pytest.approx(1 / (1 / 143_000 + 1 / (16 * 1650)))
    net.write_text(net.read_text().replace("prefetch: 1", "prefetch: 0"))
    assert main(["plan", str(net), "--target=tpu:v5e:1"]) == 1
    assert "prefetch must be 1" in capsys.readouterr().err


def test_a_net_without_data_layers_has_no_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    param = "input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } }"
    net = make_net(tmp_path, "Input", param)
    assert "feeds" not in run_plan(capsys, net)
    assert json.loads(run_plan(capsys, net, "--json"))["data"] is None
