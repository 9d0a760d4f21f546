"""Blobs in `raw_data`, as NVIDIA Caffe 0.16, DIGITS 6 and OpenCV's shrinkCaffeModel write them, in each way to load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import jax
import numpy as np
import pytest

import caffejax.dnn
from caffejax import Net, Solver
from caffejax import pycaffe as caffe
from caffejax.base.errors import CaffejaxError, WeightsError
from caffejax.cli import main
from caffejax.core.checkpoints.caffemodel import read_caffemodel
from caffejax.core.checkpoints.solverstate import SolverState, read_solverstate, write_solverstate
from caffejax.core.schema import caffe_pb2 as pb
from caffejax.core.schema import read_net
from caffejax.core.schema.blob_proto import read_blob_proto
from caffejax.tools.model_check.check import compare_weights

# by type: NumPy's dtype, and values that it holds exactly
TYPES: dict[int, tuple[str, list[float]]] = {
    pb.FLOAT: ("<f4", [0.1, -2, 3e38, 1e-40, np.inf, 0]),
    pb.DOUBLE: ("<f8", [0.1, -2, 1e300, 1e-300, -np.inf, 5]),
    pb.FLOAT16: ("<f2", [0.1, -2, 65504, 6e-8, np.nan, 0.5]),
    pb.INT: ("<i4", [-(2**31), 2**31 - 1, 0, 1, -1, 7]),
    pb.UINT: ("<u4", [2**32 - 1, 2**31, 0, 1, 2, 7]),
    pb.BOOL: ("?", [1, 0, 0, 1, 1, 0]),
}
DATA = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 4 dim: 5 } } }'
NET = f"""{DATA}
layer {{ name: "fc" type: "Convolution" bottom: "data" top: "fc"
  convolution_param {{ num_output: 2 kernel_size: 1 }} }}
layer {{ name: "pool" type: "Pooling" bottom: "fc" top: "pool" pooling_param {{ pool: AVE global_pooling: true }} }}"""
WEIGHTS, BIAS = np.array([[1, 2, -3], [0.5, 0, 1]]).reshape(2, 3, 1, 1), np.array([0.25, -8])


def fill(blob: Any, values: Any, raw_type: int | None, *, legacy: bool = False, cut: int = 0) -> None:
    """Write values into a BlobProto: as `raw_data`, or as `data` for None. `cut` bytes at the end are left out."""
    array = np.asarray(values)
    if legacy:
        blob.num, blob.channels, blob.height, blob.width = (1,) * (4 - array.ndim) + array.shape
    else:
        blob.shape.dim.extend(array.shape)
    if raw_type is None:
        blob.data.extend(array.ravel().tolist())
        return
    with np.errstate(over="ignore"):
        content = array.astype(TYPES.get(raw_type, ("<f4", []))[0]).tobytes()
    blob.raw_data, blob.raw_data_type = content[: len(content) - cut], min(raw_type, 5)


def make_model(raw_type: int | None, *arrays: Any, **settings: Any) -> bytes:
    net = pb.NetParameter()
    layer = net.layer.add(name="fc", type="Convolution")
    for array in arrays or (WEIGHTS, BIAS):
        fill(layer.blobs.add(), array, raw_type, **settings)
    return net.SerializeToString()


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("raw_type", TYPES)
def test_every_type_is_read(tmp_path: Path, raw_type: int, legacy: bool) -> None:
    dtype, values = TYPES[raw_type]
    array = np.array(values).reshape(3, 2)
    path = tmp_path / "x.caffemodel"
    path.write_bytes(make_model(raw_type, array, legacy=legacy))
    (blob,) = read_caffemodel(path)["fc"]
    assert blob is not None
    with np.errstate(over="ignore"):
        expected = np.array(values).astype(dtype).astype(np.float32).reshape((1, 1, 3, 2) if legacy else (3, 2))
    assert blob.dtype == np.float32
    np.testing.assert_array_equal(blob, expected)
    mean = pb.BlobProto()
    fill(mean, array, raw_type, legacy=legacy)
    (tmp_path / "mean.binaryproto").write_bytes(mean.SerializeToString())
    np.testing.assert_array_equal(read_blob_proto(tmp_path / "mean.binaryproto"), expected)
    in_pycaffe = caffe.io.blobproto_to_array(mean)
    np.testing.assert_array_equal(in_pycaffe, np.array(values).astype(dtype).astype(np.float64).reshape(expected.shape))


def test_data_and_double_data_come_before_raw_data(tmp_path: Path) -> None:
    """The order of NVIDIA Caffe's Blob::FromProto."""
    path = tmp_path / "x.binaryproto"
    for fields, expected in (({"data": [1, 2]}, [1, 2]), ({"data": [1, 2], "double_data": [3, 4]}, [3, 4])):
        blob = pb.BlobProto(raw_data=np.array([8, 9], "<f4").tobytes(), raw_data_type=pb.FLOAT, **fields)
        blob.shape.dim.append(2)
        path.write_bytes(blob.SerializeToString())
        np.testing.assert_array_equal(read_blob_proto(path), expected)


WAYS = ["load", "freeze", "pycaffe", "dnn", "dnn from a buffer", "check", "export", "predict", "convert", "definition"]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_loading_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str) -> None:
    raw_type = pb.FLOAT16
    prototxt, model = tmp_path / "net.prototxt", tmp_path / "net.caffemodel"
    prototxt.write_text(NET)
    model.write_bytes(make_model(raw_type))
    x = np.random.default_rng(0).normal(size=(1, 3, 4, 5)).astype(np.float32)
    expected = np.einsum("oc,nchw->no", WEIGHTS[:, :, 0, 0], x) / 20 + BIAS
    result: Any
    if way in ("load", "freeze"):
        net = Net(prototxt)
        variables = net.load(model)
        result = net.freeze(variables)({"data": x}) if way == "freeze" else net.apply(*variables, {"data": x})
        result = (result if way == "freeze" else result[0])["pool"]
    elif way == "pycaffe":
        caffe_net = caffe.Net(str(prototxt), caffe.TEST, weights=str(model))
        caffe_net.blobs["data"].data[...] = x
        result = caffe_net.forward()["pool"]
    elif way.startswith("dnn"):
        sources = (prototxt, model) if way == "dnn" else (prototxt.read_bytes(), model.read_bytes())
        dnn_net = caffejax.dnn.readNetFromCaffe(*sources)
        dnn_net.setInput(x)
        result = dnn_net.forward()
    elif way == "definition":  # the arrays are in the definition of the net
        message = pb.NetParameter.FromString(make_model(raw_type))
        text = NET.replace("num_output: 2", 'weight_filler { type: "xavier" } num_output: 2')
        definition_net = pb.NetParameter()
        definition_net.CopyFrom(read_net(text))
        definition_net.layer[1].blobs.extend(message.layer[0].blobs)
        net = Net(definition_net)
        result = net.apply(*net.init(jax.random.key(0)), {"data": x})[0]["pool"]
    elif way == "predict":
        cv2.imwrite(str(tmp_path / "p.png"), np.full((4, 5, 3), 2, np.uint8))
        command = ["predict", str(prototxt), str(tmp_path / "p.png"), f"--weights={model}", "--json"]
        assert main(command) == 0
        rows = json.loads(capsys.readouterr().out)["images"][0]["results"]["pool"]
        result = [[row["score"] for row in sorted(rows, key=lambda row: row["label"])]]
        expected = [WEIGHTS[:, :, 0, 0].sum(1) * 2 + BIAS]
    elif way == "convert":
        assert main(["convert", f"--from={model}", f"--to={tmp_path}/net.npz"]) == 0
        blobs = [*np.load(tmp_path / "net.npz").values()]
        result, expected = blobs[0].ravel(), WEIGHTS.ravel()
    elif way == "export":
        assert main(["export", str(prototxt), f"--weights={model}", f"--to={tmp_path / 'net.onnx'}"]) == 0
        return
    else:
        report = compare_weights(Net(prototxt).graph, model)
        assert not report.mismatched
        return
    np.testing.assert_allclose(np.reshape(result, -1), np.reshape(expected, -1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("raw_type", [pb.FLOAT16, pb.FLOAT, pb.DOUBLE])
def test_history_of_a_solverstate_is_read(tmp_path: Path, raw_type: int) -> None:
    (tmp_path / "net.prototxt").write_text(
        NET.replace("Input", "DummyData").replace("input_param", "dummy_data_param")
        + 'layer { name: "loss" type: "EuclideanLoss" bottom: "pool" bottom: "pool" top: "loss" }'
    )
    (tmp_path / "solver.prototxt").write_text(
        f'net: "{tmp_path}/net.prototxt" base_lr: 0 momentum: 0.5 lr_policy: "fixed" snapshot_prefix: "{tmp_path}/s"'
    )
    (tmp_path / "w.caffemodel").write_bytes(make_model(raw_type))
    state = pb.SolverState(iter=3, learned_net=str(tmp_path / "w.caffemodel"))
    for values in (WEIGHTS * 4, BIAS * 4):
        fill(state.history.add(), values, raw_type)
    path = tmp_path / "s_iter_3.solverstate"
    path.write_bytes(state.SerializeToString())
    np.testing.assert_array_equal(read_solverstate(path).history[0], WEIGHTS * 4)
    solver = Solver(tmp_path / "solver.prototxt")
    solver.restore(path)
    assert solver.iteration == 3
    write_solverstate(tmp_path / "again.solverstate", SolverState(3, "", read_solverstate(path).history))
    np.testing.assert_array_equal(read_solverstate(tmp_path / "again.solverstate").history[1], BIAS * 4)


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        ({"raw_data": b"12345678", "raw_data_type": pb.FLOAT}, "shape 3 must have 3 values, but has 2"),
        ({"raw_data": b"1234567", "raw_data_type": pb.FLOAT}, "raw_data of type FLOAT is cut short: it has 7 bytes"),
        ({"raw_data": b"12345", "raw_data_type": pb.FLOAT16}, "raw_data of type FLOAT16 is cut short"),
        ({"raw_data": b"1234", "raw_data_type": pb.BOOL}, "shape 3 must have 3 values, but has 4"),
        ({"raw_data": b"123456789012"}, "the raw_data_type of its raw_data is missing; the types are DOUBLE"),
        ({"raw_data": b""}, "the raw_data_type of its raw_data is missing"),
        ({"raw_data": b"", "raw_data_type": pb.FLOAT}, "shape 3 must have 3 values, but has 0"),
        ({"data": [1, 2], "raw_data": b"123456789012", "raw_data_type": pb.FLOAT}, "must have 3 values, but has 2"),
        ({"double_data": [1, 2]}, "must have 3 values, but has 2"),
        ({}, "must have 3 values, but has 0"),
    ],
)
def test_invalid_blobs_are_errors_that_name_layer_and_blob(tmp_path: Path, blob: dict[str, Any], message: str) -> None:
    proto = pb.BlobProto(**blob)
    proto.shape.dim.append(3)
    layer = pb.LayerParameter(name="fc", blobs=[pb.BlobProto(data=[1], shape=pb.BlobShape(dim=[1])), proto])
    files = {
        "x.caffemodel": (pb.NetParameter(layer=[layer]).SerializeToString(), read_caffemodel, "layer 'fc', blob 1: "),
        "x.solverstate": (
            pb.SolverState(iter=1, history=[proto]).SerializeToString(),
            read_solverstate,
            "history blob 0",
        ),
        "x.binaryproto": (proto.SerializeToString(), read_blob_proto, ""),
    }
    for name, (content, read, location) in files.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(WeightsError, match=message) as error:
            read(path)
        assert str(error.value).startswith(f"{path}: {location}")
        assert "damaged" not in str(error.value)  # the file is complete
    net = pb.NetParameter(layer=[pb.LayerParameter(name="fc", type="Bias", bottom=["d"], top=["t"], blobs=[proto])])
    net.layer[0].bias_param.axis = 0
    net.layer.insert(0, pb.LayerParameter(name="d", type="Input", top=["d"]))
    net.layer[0].input_param.shape.add(dim=[3])
    with pytest.raises(CaffejaxError, match="layer 'fc'"):
        Net(net).init(jax.random.key(0))


@pytest.mark.parametrize("number", [6, 7, 99, 2**31, 2**63])
def test_unknown_types_are_errors(tmp_path: Path, number: int) -> None:
    from caffejax.base.varint import encode_varint
    from caffejax.core.schema.wire import encode_delimited

    blob = b"".join(
        [
            encode_varint(10 << 3),
            encode_varint(number),
            *encode_delimited(12, b"1234"),
            *encode_delimited(7, b"\x08\x01"),
        ]
    )
    layer = b"".join([*encode_delimited(1, b"fc"), *encode_delimited(7, blob)])
    path = tmp_path / "x.caffemodel"
    path.write_bytes(b"".join(encode_delimited(100, layer)))
    with pytest.raises(
        WeightsError, match=f"layer 'fc', blob 0: .* is {number}, which is unknown; the types are DOUBLE"
    ):
        read_caffemodel(path)


def test_sizes_of_hostile_files_allocate_nothing(tmp_path: Path) -> None:
    proto = pb.BlobProto(raw_data=b"1234", raw_data_type=pb.FLOAT)
    proto.shape.dim.extend([2**62, 2**62])
    path = tmp_path / "x.binaryproto"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(
        WeightsError, match="must have 21,267,647,932,558,653,966,460,912,964,485,513,216 values, but has 1"
    ):
        read_blob_proto(path)
