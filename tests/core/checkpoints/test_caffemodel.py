"""Reading weight files: against what Caffe read from the same bytes."""

import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from recorded_weights import GOLDEN, read_recorded_blobs

from caffejax.base.errors import WeightsError
from caffejax.core.checkpoints.caffemodel import read_caffemodel
from caffejax.core.checkpoints.match_by_name import reshape_to_net
from caffejax.core.schema import caffe_pb2
from caffejax.core.schema.blob_proto import Legacy4D, read_blob_proto

CASES = [
    case
    for case in json.loads((GOLDEN / "index.json").read_text())
    if not case["weights"].endswith(".h5")  # HDF5 is read elsewhere
]

FILLER_VALUE = 0.125  # the nets' filler


@pytest.fixture(scope="module")
def read_content(tmp_path_factory):
    """`read_caffemodel` of bytes."""
    path = tmp_path_factory.mktemp("weights") / "x.caffemodel"

    def read_bytes(data: bytes) -> dict[str, tuple[np.ndarray, ...]]:
        path.write_bytes(data)
        return read_caffemodel(path)

    return read_bytes


def list_plain_shapes() -> dict[str, list[tuple[int, ...]]]:
    """Return the shapes of the blobs of plain.prototxt's layers that have weights."""
    shapes = {
        name: [b.shape for b in blobs] for name, blobs in read_recorded_blobs(GOLDEN / "float_with_diff.npz").items()
    }
    return {"data": [], "act": [], "prob": [], **shapes}


def assert_weights_are_read(weights: Path, expected: Path) -> None:
    stored = read_caffemodel(weights)
    recorded = read_recorded_blobs(expected)
    assert recorded
    for layer, blobs in recorded.items():
        if layer in stored:
            for actual, expected in zip(
                reshape_to_net(layer, stored[layer], [b.shape for b in blobs]), blobs, strict=True
            ):
                assert actual.dtype == np.float32
                assert not actual.flags.writeable
                np.testing.assert_array_equal(actual, expected)
        else:
            assert all((blob == FILLER_VALUE).all() for blob in blobs), layer


@pytest.mark.parametrize("case", [c for c in CASES if c["expected"]], ids=lambda c: c["case"])
def test_reads_the_blobs_that_caffe_read(case):
    assert_weights_are_read(GOLDEN / case["weights"], GOLDEN / case["expected"])


@pytest.mark.parametrize("case", [c for c in CASES if not c["expected"]], ids=lambda c: c["case"])
def test_refuses_the_files_that_caffe_refused(case):
    stored = read_caffemodel(GOLDEN / case["weights"])
    messages = []
    for layer, shapes in list_plain_shapes().items():
        try:
            reshape_to_net(layer, stored.get(layer, [np.empty(s, np.float32) for s in shapes]), shapes)
        except WeightsError as error:
            messages.append(str(error))
    (message,) = messages
    caffe_message = case["error"]["message"]
    if "shape mismatch" in caffe_message:
        index, layer = caffe_message.split("param ")[1][0], caffe_message.split("'")[1]
        assert f"layer '{layer}': blob {index} is " in message
    else:
        assert f"layer '{caffe_message.split()[-1]}': the file has " in message
    assert message.endswith("rename the layer to train it from scratch")


@pytest.mark.parametrize("version", ["v0", "v1"])
def test_caffes_upgraded_files_have_the_same_blobs(version):
    stored_v0_or_v1 = read_caffemodel(GOLDEN / f"{version}_legacy4d.caffemodel")
    upgraded = read_caffemodel(GOLDEN / f"{version}_legacy4d.upgraded.caffemodel")
    assert list(upgraded) == ["input", *stored_v0_or_v1]
    for name in stored_v0_or_v1:
        for a, b in zip(stored_v0_or_v1[name], upgraded[name], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("weights", "expected"), [("det1", "det1_params"), ("lenet", None)])
def test_third_party_models_are_read(shared_folder, weights, expected):
    folder = shared_folder / "golden" / "weights"
    if expected:
        assert_weights_are_read(folder / f"{weights}.caffemodel", folder / f"{expected}.npz")
    else:
        shapes = {n: [b.shape for b in bs] for n, bs in read_caffemodel(folder / f"{weights}.caffemodel").items()}
        assert shapes["conv1"][0][-3:] == (1, 5, 5)
        assert sum(map(len, shapes.values())) == 8


def test_the_last_layer_of_a_repeated_name_is_read_in_file_order(read_content):
    model = caffe_pb2.NetParameter()
    for name, value in [("b", 1), ("a", 2), ("b", 3)]:
        model.layer.add(name=name).blobs.add(shape={"dim": [1]}, data=[value])
    blobs = read_content(model.SerializeToString())
    assert [(name, *blob) for name, (blob,) in blobs.items()] == [("b", 3), ("a", 2)]


def encode_field(field: int, wire_type: int, content: bytes) -> bytes:
    key, out = field << 3 | wire_type, b""
    while key > 127:
        out, key = out + bytes([key & 127 | 128]), key >> 7
    out += bytes([key])
    return out + (bytes([len(content)]) if wire_type == 2 else b"") + content


BLOB = encode_field(7, 2, encode_field(1, 2, b"\x02")) + encode_field(5, 2, np.array([1, 2], "<f4").tobytes())


@pytest.mark.parametrize("number", [9, 10, 13, 50, 100, 148, 200, 20000])
@pytest.mark.parametrize(("kind", "content"), [(0, b"\x05"), (1, b"12345678"), (2, b"\xff\xfejunk"), (5, b"1234")])
def test_unknown_fields_are_skipped(read_content, number, kind, content):
    fork_field = encode_field(number, kind, content)
    layer = fork_field + encode_field(1, 2, b"x") + fork_field + encode_field(7, 2, fork_field + BLOB + fork_field)
    (blob,) = read_content(encode_field(9, kind, content) + encode_field(100, 2, layer))["x"]
    assert blob.tolist() == [1, 2]


@pytest.mark.parametrize("split", [0, 1, 3])
def test_packed_unpacked_and_mixed_floats_are_read(read_content, split):
    values = np.array([1.5, -2, 3], "<f4")
    data = b"".join(encode_field(5, 5, v.tobytes()) for v in values[:split])
    data += encode_field(5, 2, values[split:].tobytes()) if split < 3 else b""
    layer = encode_field(1, 2, b"x") + encode_field(7, 2, data + encode_field(7, 2, encode_field(1, 0, b"\x03")))
    assert read_content(encode_field(100, 2, layer))["x"][0].tolist() == values.tolist()


def test_legacy_shapes_are_right_aligned_and_explicit_shapes_are_not():
    legacy = np.zeros((1, 1, 5, 8), np.float32).view(Legacy4D)
    assert reshape_to_net("x", [legacy], [(5, 8)])[0].shape == (5, 8)
    assert reshape_to_net("x", [legacy], [(1, 5, 8)])[0].shape == (1, 5, 8)
    for blob, shape in [
        (np.asarray(legacy), (5, 8)),
        (legacy, (8, 5)),
        (legacy, (40,)),
        (legacy, (1, 1, 1, 5, 8)),
    ]:
        with pytest.raises(WeightsError, match="layer 'x': blob 0 is 1 x 1 x 5 x 8 in the file, "):
            reshape_to_net("x", [blob], [shape])


@pytest.mark.parametrize("name", ["mean_nd", "mean_legacy", "mean_3d_double"])
def test_mean_files_are_read(name):
    mean = read_blob_proto(GOLDEN / f"{name}.binaryproto")
    with np.load(GOLDEN / f"{name}.npz") as recorded:
        np.testing.assert_array_equal(mean.reshape(recorded["stored"].shape), recorded["stored"].astype(np.float32))
        if "array" in recorded:
            np.testing.assert_array_equal(mean, recorded["array"].astype(np.float32))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (encode_field(3, 2, b"x"), "there are no layers"),
        (b"\x80\0", "not a .caffemodel, or damaged or cut short"),
        (b"\x89HDF\r\n\x1a\n....", "not a .caffemodel.h5, or damaged"),
        (b"<!DOCTYPE html><html>", "an HTML page; download"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "a git-lfs pointer; fetch"),
        (b"\x1f\x8b\x08\0", "a compressed file; unpack"),
        (b"PK\3\4\x14\0", "a zip archive"),
        (caffe_pb2.SolverState(iter=10, learned_net="10.caffemodel").SerializeToString(), "a .solverstate"),
        (b'name: "LeNet"\nlayer {', "a text"),
        (encode_field(100, 2, encode_field(1, 2, b"x") + encode_field(7, 2, b"")), "layer 'x', .* 1 value, but has 0"),
        (encode_field(100, 2, encode_field(7, 2, encode_field(5, 2, b"12345"))), "layer '', blob 0: its data is cut"),
    ],
)  # fmt: skip
def test_invalid_files_are_refused(tmp_path, content, message):
    path = tmp_path / "bad.caffemodel"
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=f"^{path}: .*{message}"):
        read_caffemodel(path)


def test_missing_files_and_folders_are_refused(tmp_path):
    for path, message in [(tmp_path / "none", "no such file"), (tmp_path, "a folder")]:
        with pytest.raises(WeightsError, match=message):
            read_caffemodel(path)
        with pytest.raises(WeightsError, match=message):
            read_blob_proto(path)


def test_every_truncation_is_detected_or_ends_between_layers(read_content):
    content = (GOLDEN / "current.caffemodel").read_bytes()
    names = list(read_content(content))
    for size in range(len(content)):
        with suppress(WeightsError):
            result = list(read_content(content[:size]))
            assert result == names[: len(result)]
