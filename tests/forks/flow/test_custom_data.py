"""Tests of CustomData, and of the databases that convert_imageset_and_flow writes for it."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from caffejax import Net, Solver, caffe_pb2
from caffejax.base.databases import Lmdb
from caffejax.base.errors import CaffejaxError
from caffejax.cli import main
from caffejax.core.data.database import WRITERS
from caffejax.forks.flow.custom_data import shuffle
from caffejax.forks.flow.flow_files import encode_flow_datum, read_flow
from caffejax.tools.model_check.check import check_file

HEIGHT, WIDTH = 5, 7  # the bits of a plane end within a byte
NUM_RECORDS = 6
SLICES = "slice_point: 3 slice_point: 6 slice_point: 8"
ENCODINGS = f"{SLICES} encoding: UINT8 encoding: UINT8 encoding: UINT16FLOW encoding: BOOL1"


def pack(number: int, height: int = HEIGHT, width: int = WIDTH) -> tuple[bytes, list[list[float]]]:
    """Return the bytes of a Datum by the layout of the fork, value by value, and the values of the four slices."""
    random = np.random.default_rng(number)
    data, values = bytearray(), []
    for _ in range(2):
        pixels = random.integers(0, 256, 3 * height * width).tolist()
        data += bytes(pixels)
        values.append([float(v) for v in pixels])
    units = [32767, -32768, *random.integers(-900, 900, 2 * height * width - 2).tolist()]
    for unit in units:
        data += struct.pack("<h", unit)
    values.append([float("nan") if unit == 32767 else unit / 32 for unit in units])
    bits = random.integers(0, 2, height * width).tolist()
    for i in range(0, len(bits), 8):
        data.append(sum(bit << k for k, bit in enumerate(bits[i : i + 8])))
    values.append([float(bit) for bit in bits])
    return bytes(data), values


def write_database(folder: Path, count: int = NUM_RECORDS, **fields: Any) -> Path:
    with WRITERS["lmdb"](folder / "lmdb") as put:
        for i in range(count):
            datum = caffe_pb2.Datum(channels=9, height=HEIGHT, width=WIDTH, data=pack(i)[0], label=i)
            datum.MergeFrom(caffe_pb2.Datum(**fields))
            put(b"%08d_" % i, datum.SerializeToString())
    return folder / "lmdb"


def layer_text(source: Path, settings: str = ENCODINGS, num_tops: int = 4, batch_size: int = 1) -> str:
    tops = " ".join(f'top: "t{i}"' for i in range(num_tops))
    return f"""layer {{ name: "d" type: "CustomData" {tops}
      data_param {{ source: "{source}" batch_size: {batch_size} backend: LMDB {settings} }} }}"""


def labels_of(source: Any, num_batches: int) -> list[int]:
    return [int(x) for _ in range(num_batches) for x in np.asarray(next(source)[-1]).ravel()]


def test_slices_equal_the_values_of_their_encodings(tmp_path: Path, open_source: Callable[..., Any]) -> None:
    source = open_source(layer_text(write_database(tmp_path), num_tops=5, batch_size=2))
    for first in (0, 2):
        *tops, labels = (np.asarray(top) for top in next(source))
        assert [top.shape for top in tops] == [(2, c, HEIGHT, WIDTH) for c in (3, 3, 2, 1)]
        assert labels.shape == (2, 1, 1, 1)
        for k in range(2):
            for top, values in zip(tops, pack(first + k)[1], strict=True):
                np.testing.assert_array_equal(top[k].ravel(), np.array(values, np.float32))


def test_values_without_encodings(tmp_path: Path, open_source: Callable[..., Any]) -> None:
    values = np.random.default_rng(1).normal(size=2 * HEIGHT * WIDTH).astype(np.float32)
    source = write_database(tmp_path, 1, channels=2, data=b"", float_data=values.tolist())
    a, b = next(open_source(layer_text(source, "slice_point: 1 subtract: 3 scale: 0.5", 2)))
    plane = HEIGHT * WIDTH
    np.testing.assert_array_equal(np.asarray(a).ravel(), (values[:plane] - 3) * np.float32(0.5))
    np.testing.assert_array_equal(np.asarray(b).ravel(), values[plane:] * np.float32(0.5))


def test_slices_after_the_last_encoding_are_bytes(tmp_path: Path, open_source: Callable[..., Any]) -> None:
    plane = HEIGHT * WIDTH
    data = bytes(range(2 * plane)) + bytes(plane)
    source = write_database(tmp_path, 1, channels=2, data=data)
    flow, pixels = next(open_source(layer_text(source, "slice_point: 1 encoding: UINT16FLOW", 2)))
    stored = [data[2 * i] + 256 * data[2 * i + 1] for i in range(plane)]
    np.testing.assert_array_equal(np.asarray(flow).ravel(), np.array(stored) / 32)
    np.testing.assert_array_equal(np.asarray(pixels), 0)


# by GNU's std::random_shuffle after srand, printed by a program of a few lines
ORDERS = {
    (1, 10): [4, 3, 7, 8, 0, 5, 2, 1, 6, 9],
    (77, 8): [1, 6, 4, 0, 7, 3, 5, 2],
    (2**32 - 1, 12): [3, 2, 5, 6, 11, 1, 8, 4, 9, 7, 0, 10],
}


@pytest.mark.parametrize(("seed", "count"), ORDERS)
def test_orders_are_those_of_the_fork(seed: int, count: int) -> None:
    assert shuffle(range(count), seed) == ORDERS[seed, count]


def test_a_permuted_epoch_has_each_record_once_and_repeats(tmp_path: Path, open_source: Callable[..., Any]) -> None:
    database = write_database(tmp_path)
    orders = []
    for settings, options in (
        ("rand_permute_seed: 77", {}),
        ("rand_permute_seed: 77", {"seed": 5}),
        ("", {"seed": 5}),
        ("", {"seed": 6}),
        ("", {"seed": 5}),
    ):
        text = layer_text(database, f"{ENCODINGS} rand_permute: true {settings}", 5, 2)
        labels = labels_of(open_source(text, **options), 6)
        assert labels[:NUM_RECORDS] == labels[NUM_RECORDS:]
        assert sorted(labels[:NUM_RECORDS]) == list(range(NUM_RECORDS))
        orders.append(labels[:NUM_RECORDS])
    assert orders[0] == orders[1] == shuffle(range(NUM_RECORDS), 77)
    assert orders[2] == orders[4] != orders[3]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", range(6)),
        ("range_start: 4", [4, 5]),
        ("range_end: 2", [0, 1, 2]),
        ("range_start: -3 range_end: 99", range(6)),
        ("range_start: 99", [5]),
        ("preselection_file: 'split' preselection_label: 2", [2, 5]),
        ("preselection_file: 'split' preselection_label: 1 range_start: 1 range_end: 2", [1, 3]),
        ("rand_permute: true rand_permute_seed: 9 range_end: 2", shuffle(range(6), 9)[:3]),
        (
            "rand_permute: true rand_permute_seed: 9 range_end: 2 rand_permute_order: FIRST_RANGE_THEN_PERMUTE",
            shuffle(range(3), 9),
        ),
    ],
)
def test_selected_records(
    settings: str, expected: Any, tmp_path: Path, open_source: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = write_database(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("split").write_text("1\n1\n2\n1\n1\n2\n")
    source = open_source(layer_text(database, f"{ENCODINGS} {settings}", 5))
    assert labels_of(source, 2 * len(expected)) == 2 * list(expected)
    assert source.num_examples == len(expected)


@pytest.mark.parametrize(
    ("fields", "settings", "message"),
    [
        ({"data": pack(0)[0][:-1]}, ENCODINGS, r"has 354 bytes of data.* need 355"),
        ({"data": pack(0)[0] + b"0"}, ENCODINGS, r"has 356 bytes of data.* need 355"),
        ({"channels": 8}, ENCODINGS, r"has 8 channels, but data_param.slice_point is \[3, 6, 8\]"),
        ({"channels": 10}, ENCODINGS, "encoding BOOL1 must have 1"),
        ({}, SLICES, "has 355 bytes of data.* UINT8, UINT8, UINT8, UINT8 need 315"),
        ({"height": 0}, ENCODINGS, r"has shape \(9, 0, 7\)"),
        ({"height": 2**31 - 1}, ENCODINGS, "has 355 bytes of data"),
        ({"encoded": True}, ENCODINGS, "a compressed image"),
        ({"float_data": [1, 2]}, ENCODINGS, "has 2 values in float_data"),
        ({"float_data": [1, 2]}, SLICES, "has 2 values in float_data"),
        ({}, f"{ENCODINGS} {'subtract: 1 ' * 10}", "data_param.subtract is set 10 times"),
    ],
)
def test_wrong_records_raise(fields: Any, settings: str, message: str, tmp_path: Path) -> None:
    source = write_database(tmp_path, 1, **fields)
    with pytest.raises(CaffejaxError, match=f"record '00000000_' .*{message}"):
        Net(layer_text(source, settings))


def test_a_damaged_record_raises(tmp_path: Path) -> None:
    with WRITERS["lmdb"](tmp_path / "lmdb") as put:
        put(b"0", b"\xff\xff")
    with pytest.raises(CaffejaxError, match="record '0' is not a Datum"):
        Net(layer_text(tmp_path / "lmdb"))


@pytest.mark.parametrize(
    ("settings", "num_tops", "message"),
    [
        ("slice_point: 3 slice_point: 3", 3, r"slice_point must increase from 1 on, not \[3, 3\]"),
        ("slice_point: 0", 2, "slice_point must increase"),
        (ENCODINGS, 3, "has 3 tops, but needs one for each of 4 slices"),
        (ENCODINGS, 6, "has 6 tops, but needs one for each of 4 slices"),
        ("encoding: UINT8 encoding: UINT8", 1, "encoding is set 2 times, but there are 1 slices"),
        (f"{ENCODINGS} preselection_file: 'x'", 4, "no preselection_label"),
        (f"{ENCODINGS} preselection_file: '{{folder}}/split' preselection_label: 1", 4, "has 2 labels, but .* 6 rec"),
        (f"{ENCODINGS} preselection_file: '{{folder}}/six' preselection_label: 3", 4, "has no label 3"),
        (f"{ENCODINGS} range_start: 3 range_end: 2", 4, "range_end 2 is before range_start 3"),
        (f"{ENCODINGS} crop_size: 3", 4, "crop_size is not a setting of CustomData"),
        (f"{ENCODINGS} mirror: true", 4, "mirror is not a setting of CustomData"),
        (f"{ENCODINGS} rand_skip: 3", 4, "rand_skip is not a setting of CustomData"),
        (f"{ENCODINGS} mean_file: 'x'", 4, "mean_file is not supported by CustomData"),
        (f"{ENCODINGS} scale: inf", 4, "scale must be finite"),
        (f"{ENCODINGS} block_size: 3", 4, "block_size .*is not supported"),
        (f"{ENCODINGS} }} transform_param {{ mirror: true", 4, "transform_param.mirror is not supported"),
    ],
)
def test_wrong_settings_raise(settings: str, num_tops: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "split").write_text("1 2")
    (tmp_path / "six").write_text("1 2 1 2 1 2")
    database = write_database(tmp_path)
    with pytest.raises(CaffejaxError, match=message):
        Net(layer_text(database, settings.replace("{folder}", str(tmp_path)), num_tops))


def write_pairs(folder: Path, size: tuple[int, int] = (24, 32), count: int = 3) -> list[np.ndarray]:
    """Write image pairs in which the second image is the first, moved by a flow; return the flows."""
    random, lines, flows = np.random.default_rng(0), [], []
    for i in range(count):
        first = cv2.resize(random.integers(0, 256, (6, 8, 3)).astype(np.uint8), size[::-1])
        dx, dy = random.integers(-2, 3, 2).tolist()
        cv2.imwrite(f"{folder}/{i}a.png", first)
        cv2.imwrite(f"{folder}/{i}b.png", np.roll(first, (dy, dx), (0, 1)))
        flow = np.full((*size, 2), (dx + 0.25, dy - 0.03), np.float32)
        flow[0, 0] = np.nan, 1e9
        flows.append(flow)
        Path(f"{folder}/{i}.flo").write_bytes(b"PIEH" + struct.pack("<ii", *size[::-1]) + flow.tobytes())
        occlusions = np.zeros(size, np.uint8)
        occlusions[i] = 200
        cv2.imwrite(f"{folder}/{i}o.png", occlusions)
        lines.append(f"{folder}/{i}a.png {folder}/{i}b.png {folder}/{i}.flo {folder}/{i}o.png\n")
    (folder / "list").write_text("".join(lines))
    return flows


def test_the_layer_reads_what_the_command_writes(tmp_path: Path, open_source: Callable[..., Any]) -> None:
    flows = write_pairs(tmp_path)
    assert main(["convert_imageset_and_flow", f"{tmp_path}/list", f"{tmp_path}/lmdb"]) == 0
    assert [key for key, _ in Lmdb(tmp_path / "lmdb")] == [f"0000000{i}_{tmp_path}/{i}.flo".encode() for i in range(3)]
    source = open_source(layer_text(tmp_path / "lmdb"))
    for i, expected_flow in enumerate(flows):
        first, second, flow, occlusions = (np.asarray(top)[0] for top in next(source))
        np.testing.assert_array_equal(first.transpose(1, 2, 0), cv2.imread(f"{tmp_path}/{i}a.png"))
        np.testing.assert_array_equal(second.transpose(1, 2, 0), cv2.imread(f"{tmp_path}/{i}b.png"))
        assert np.isnan(flow[:, 0, 0]).all()
        np.testing.assert_array_equal(flow[:, 1, 1], np.trunc(expected_flow[1, 1] * 32) / 32)
        np.testing.assert_array_equal(occlusions[0], np.arange(24)[:, None] * np.ones(32) == i)


def test_the_command_shuffles_and_pairs_may_have_no_flow(tmp_path: Path, open_source: Callable[..., Any]) -> None:
    write_pairs(tmp_path)
    (tmp_path / "list").write_text("".join(f"{tmp_path}/{i}a.png {tmp_path}/{i}b.png\n" for i in range(3)))
    assert main(["convert_imageset_and_flow", f"{tmp_path}/list", f"{tmp_path}/db", "1", "leveldb"]) == 0
    source = open_source(layer_text(tmp_path / "db").replace("LMDB", "LEVELDB"))
    for i in shuffle(range(3), 1):
        first, _, flow, occlusions = (np.asarray(top)[0] for top in next(source))
        np.testing.assert_array_equal(first.transpose(1, 2, 0), cv2.imread(f"{tmp_path}/{i}a.png"))
        assert not flow.any()
        assert not occlusions.any()


def test_flows_that_are_no_numbers_become_unknown(tmp_path: Path) -> None:
    write_pairs(tmp_path, (1, 3), count=1)
    values = struct.pack("<6I", 0x7F800001, 0x7FC00000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0)  # the first: signalling
    (tmp_path / "f.flo").write_bytes(b"PIEH" + struct.pack("<ii", 3, 1) + values)
    image = f"{tmp_path}/0a.png"
    datum = caffe_pb2.Datum.FromString(encode_flow_datum(image, image, f"{tmp_path}/f.flo", "", 99))
    np.testing.assert_array_equal(np.frombuffer(datum.data, "<i2", 6, 18), [32767] * 5 + [0])


@pytest.mark.parametrize("byte_order", ["<", ">"])
def test_pfm_files_begin_with_the_last_row(byte_order: str, tmp_path: Path) -> None:
    values = np.arange(18, dtype=f"{byte_order}f4").reshape(2, 3, 3)
    scale = b"-1.0" if byte_order == "<" else b"1"
    (tmp_path / "f.pfm").write_bytes(b"PF\n3 2\n" + scale + b"\n" + values.tobytes())
    np.testing.assert_array_equal(read_flow(f"{tmp_path}/f.pfm"), values[::-1, :, :2].transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0a.png", "is not two images, a flow and occlusions"),
        ("0a.png gone.png", "gone.png"),
        ("0a.png 0b.png gone.flo", "gone.flo"),
        ("0a.png 0b.png 0a.png", "0a.png: is not a .flo file"),
        ("0a.png 0b.png short.flo", "announces 24 x 32 pixels, but 3 bytes follow"),
        ("0a.png 0b.png bad.pfm", "is not a .pfm file of three channels"),
        ("0a.png small.png", "small.png has 3 x 3 pixels, but the first image 0a.png has 24 x 32"),
        ("0a.png 0b.png 0.flo small.png", "small.png has 3 x 3 pixels"),
    ],
)
def test_wrong_lists_are_refused(
    line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path, count=1)
    cv2.imwrite("small.png", np.zeros((3, 3), np.uint8))
    Path("short.flo").write_bytes(Path("0.flo").read_bytes()[:15])
    Path("bad.pfm").write_bytes(b"Pf\n3 3\n-1\n" + bytes(36))
    Path("wrong").write_text(f"{line}\n")
    assert main(["convert_imageset_and_flow", "wrong", "db"]) == 1
    assert message in capsys.readouterr().err
    assert not Path("db").exists()


AUGMENTATION = "augment_during_test: false crop_width: 24 crop_height: 16"


def training_net(source: Path) -> str:
    """Return FlowNet 2-S's training net in small: its data, scaling, augmentation, losses at two sizes, and Silence."""
    return f"""
layer {{ name: "CustomData1" type: "CustomData" top: "blob0" top: "blob1" top: "blob2" top: "unused1"
  data_param {{ source: "{source}" batch_size: 2 backend: LMDB rand_permute: true rand_permute_seed: 77 {ENCODINGS}
    verbose: true }} }}
layer {{ name: "SilenceUnused1" type: "Silence" bottom: "unused1" }}
layer {{ name: "Eltwise1" type: "Eltwise" bottom: "blob0" top: "blob4" eltwise_param {{ coeff: 0.00392 }} }}
layer {{ name: "Eltwise2" type: "Eltwise" bottom: "blob1" top: "blob5" eltwise_param {{ coeff: 0.00392 }} }}
layer {{ name: "img0s_aug" type: "DataAugmentation" bottom: "blob4" top: "img0_aug" top: "blob7"
  augmentation_param {{ {AUGMENTATION} max_multiplier: 1 recompute_mean: 10 mean_per_pixel: false
    translate {{ rand_type: "uniform_bernoulli" spread: 0.1 prob: 1.0 }} }} }}
layer {{ name: "aug_params1" type: "GenerateAugmentationParameters" bottom: "blob7" bottom: "blob4" bottom: "img0_aug"
  top: "blob8" augmentation_param {{ augment_during_test: false
    gamma {{ rand_type: "gaussian_bernoulli" exp: true spread: 0.02 prob: 1.0 }} }} }}
layer {{ name: "img1s_aug" type: "DataAugmentation" bottom: "blob5" bottom: "blob8" top: "img1_aug"
  augmentation_param {{ {AUGMENTATION} max_multiplier: 1 recompute_mean: 10 mean_per_pixel: false }} }}
layer {{ name: "FlowAugmentation1" type: "FlowAugmentation" bottom: "blob2" bottom: "blob7" bottom: "blob8"
  top: "flow_gt_aug" augmentation_param {{ crop_width: 24 crop_height: 16 }} }}
layer {{ name: "FlowScaling" type: "Eltwise" bottom: "flow_gt_aug" top: "scaled_flow_gt"
  eltwise_param {{ coeff: 0.05 }} }}
layer {{ name: "Concat1" type: "Concat" bottom: "img0_aug" bottom: "img1_aug" top: "input" }}
layer {{ name: "conv1" type: "Convolution" bottom: "input" top: "conv1"
  convolution_param {{ num_output: 8 pad: 2 kernel_size: 5 stride: 2 weight_filler {{ type: "msra" }} }} }}
layer {{ name: "ReLU1" type: "ReLU" bottom: "conv1" top: "conv1" relu_param {{ negative_slope: 0.1 }} }}
layer {{ name: "predict2" type: "Convolution" bottom: "conv1" top: "predict_flow2"
  convolution_param {{ num_output: 2 pad: 1 kernel_size: 3 stride: 2 weight_filler {{ type: "msra" }} }} }}
layer {{ name: "Downsample1" type: "Downsample" bottom: "scaled_flow_gt" bottom: "predict_flow2" top: "blob23" }}
layer {{ name: "flow_loss2" type: "L1Loss" bottom: "predict_flow2" bottom: "blob23" top: "flow_loss2" loss_weight: 0.3
  l1_loss_param {{ l2_per_location: true }} }}
layer {{ name: "predict1" type: "Convolution" bottom: "conv1" top: "predict_flow1"
  convolution_param {{ num_output: 2 pad: 1 kernel_size: 3 weight_filler {{ type: "msra" }} }} }}
layer {{ name: "Downsample2" type: "Downsample" bottom: "scaled_flow_gt" bottom: "predict_flow1" top: "blob28" }}
layer {{ name: "flow_loss1" type: "L1Loss" bottom: "predict_flow1" bottom: "blob28" top: "flow_loss1" loss_weight: 0.1
  l1_loss_param {{ l2_per_location: true }} }}
"""


def test_flownet_in_small_trains_and_resumes(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    assert main(["convert_imageset_and_flow", f"{tmp_path}/list", f"{tmp_path}/lmdb", "0", "lmdb"]) == 0
    text = f"""net_param {{ {training_net(tmp_path / "lmdb")} }} base_lr: 0.003 lr_policy: "fixed" type: "Adam"
      momentum: 0.9 momentum2: 0.999 weight_decay: 0.0004 max_iter: 40 random_seed: 1 snapshot: 20
      snapshot_prefix: "{tmp_path}/s" """
    solver = Solver(text)
    losses = []
    for num_steps in (1, 19, 20):
        solver.step(num_steps)
        losses.append(float(solver.smoothed_loss))
    solver.close()
    assert losses[2] < 0.5 * losses[0]
    resumed = Solver(text)
    resumed.restore(str(tmp_path / "s_iter_20.solverstate"))
    resumed.step(20)
    assert float(resumed.smoothed_loss) == losses[2]
    resumed.close()


@pytest.mark.parametrize(
    ("encoding", "assumption"),
    [
        ("BOOL1", "8x3x540x960, 8x3x540x960, 8x2x540x960, 8x1x540x960"),
        ("UINT8", "its settings do not determine the shapes of its tops"),
    ],
)
def test_a_net_is_checked_without_its_database(encoding: str, assumption: str, tmp_path: Path) -> None:
    """FlowNet 2's crop is larger than most images. A last slice of bytes may have any number of channels."""
    text = layer_text(Path("gone"), ENCODINGS.replace("BOOL1", encoding), batch_size=8)
    (tmp_path / "net.prototxt").write_text(
        f"""{text} layer {{ name: "a" type: "DataAugmentation" bottom: "t0" top: "a"
        augmentation_param {{ crop_width: 768 crop_height: 384 }} }}"""
    )
    phase = check_file(tmp_path / "net.prototxt").phases[0]
    assert phase.outcome == "loads"
    assert assumption in phase.assumed[0]
