"""Events for TensorBoard, read back from the file's own format with its checksums."""

import errno
import logging
import os
import struct
import sys
from pathlib import Path
from typing import Any

import cv2
import google_crc32c
import numpy as np
import pytest
from small_run import EventRecorder, make_small_solver, train

from caffejax.base.errors import CaffejaxError
from caffejax.core.program.net import Net
from caffejax.tools.debugging.visualize import enlarge, make_filter_maps, make_grid
from caffejax.tools.metrics import TensorBoard, tensorboard
from caffejax.tools.metrics.tensorboard import make_graph_def

pytest.importorskip("tensorboardX")

CONFIGS = Path(__file__).parents[3] / "configs"


def mask_checksum(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_events(file: Path) -> list[Any]:
    """Return all events of a TFRecord file."""
    from tensorboardX.proto.event_pb2 import Event

    data, result = file.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        record = data[12 : 12 + length]
        assert struct.unpack("<I", data[8:12]) == (mask_checksum(data[:8]),)
        assert struct.unpack("<I", data[12 + length : 16 + length]) == (mask_checksum(record),)
        result.append(Event.FromString(record))
        data = data[16 + length :]
    return result


@pytest.fixture(scope="module")
def training_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], EventRecorder, Any]:
    """Return the written events of a run, the recorded callbacks, and the solver."""
    folder = tmp_path_factory.mktemp("run")
    solver, events = make_small_solver(folder), EventRecorder()
    train(solver, events, TensorBoard(folder / "new" / "events"))
    (file,) = (folder / "new" / "events").iterdir()
    return read_events(file), events, solver


def collect_values(events: list[Any], kind: str) -> dict[str, dict[int, Any]]:
    """Return the written values, by tag and step."""
    result: dict[str, dict[int, Any]] = {}
    for event in events:
        for value in event.summary.value:
            if value.HasField(kind):
                result.setdefault(value.tag, {})[event.step] = getattr(value, kind)
    return result


def test_scalars_equal_displays_and_tests(training_run: tuple[list[Any], EventRecorder, Any]) -> None:
    events, callback, _ = training_run
    scalars = collect_values(events, "simple_value")
    displays = {iteration: display for event, iteration, display in callback.events if event == "train"}
    test_scores = {iteration: scores for event, iteration, (scores,) in (e for e in callback.events if e[0] == "test")}
    assert displays.keys() == {0, 2, 4, 6}
    assert test_scores.keys() == {0, 3, 6}
    assert scalars["train/loss"] == {iteration: np.float32(d.loss) for iteration, d in displays.items()}
    assert scalars["train/lr"] == {iteration: np.float32(d.rate) for iteration, d in displays.items()}
    assert scalars["train/output/loss"] == {
        iteration: d.outputs["loss"] for iteration, d in displays.items() if d.outputs
    }
    assert np.isnan(scalars["train/output/worst"][0])
    paces = {iteration: d.pace for iteration, d in displays.items() if d.pace}
    assert scalars["speed/images_per_second"] == {
        iteration: np.float32(p.images_per_second) for iteration, p in paces.items()
    }
    assert scalars["speed/waiting_for_data"] == {iteration: np.float32(p.waiting) for iteration, p in paces.items()}
    for name in ("accuracy", "loss"):
        assert scalars[f"test/{name}"] == {iteration: scores.outputs[name] for iteration, scores in test_scores.items()}


def test_histograms_and_filters_are_those_of_the_params(training_run: tuple[list[Any], EventRecorder, Any]) -> None:
    events, _, solver = training_run
    histograms, images = collect_values(events, "histo"), collect_values(events, "image")
    for layer, arrays in solver.variables.params.items():
        for i, array in arrays.items():
            values = np.asarray(array, np.float64)
            last_histogram = histograms[f"params/{layer}/{i}"][6]
            assert last_histogram.num == sum(last_histogram.bucket) == values.size
            np.testing.assert_allclose(
                [last_histogram.min, last_histogram.max, last_histogram.sum], [values.min(), values.max(), values.sum()]
            )
    assert len(histograms) == 4
    assert images.keys() == {"filters/conv"}
    image = images["filters/conv"][6]
    picture = cv2.imdecode(np.frombuffer(image.encoded_image_string, np.uint8), cv2.IMREAD_UNCHANGED)
    expected = enlarge(make_grid(make_filter_maps(np.asarray(solver.variables.params["conv"]["weight"]))))
    np.testing.assert_array_equal(picture, expected)
    assert (image.height, image.width, image.colorspace) == (*expected.shape[:2], 3)


def test_the_graph_has_the_layers_with_their_shapes(training_run: tuple[list[Any], EventRecorder, Any]) -> None:
    from tensorboardX.proto.graph_pb2 import GraphDef

    events, _, solver = training_run
    (graph,) = (GraphDef.FromString(event.graph_def) for event in events if event.graph_def)
    layers = [layer for layer in solver.net.graph.layers if not layer.is_inserted_split]
    assert [(node.name, node.op) for node in graph.node] == [(layer.key, layer.type.name) for layer in layers]
    nodes = {node.name: node for node in graph.node}
    assert list(nodes["loss"].input) == ["ip", "data:1"]
    assert list(nodes["ip"].input) == ["relu"]  # in place: the last that wrote the blob
    assert list(nodes["log"].input) == ["ip"]  # past the split
    for layer in layers:
        shapes = [[d.size for d in s.dim] for s in nodes[layer.key].attr["_output_shapes"].list.shape]
        assert shapes == [list(solver.net.graph.blobs[top].shape) for top in layer.tops]
        params = [[d.size for d in s.dim] for s in nodes[layer.key].attr["params"].list.shape]
        assert params == [list(param.spec.shape) for param in layer.params]


@pytest.mark.parametrize("config", ["googlenet", "resnet50", "faster_rcnn_toy", "ssd300"])
def test_graphs_of_larger_nets_are_connected(config: str) -> None:
    (path,) = (p for p in (CONFIGS / config).glob("train*.prototxt") if "solver" not in p.name)
    nodes = make_graph_def(Net(path, "TRAIN").graph).node
    names = [node.name for node in nodes]
    assert len(set(names)) == len(names)
    for i, node in enumerate(nodes):
        assert {bottom.partition(":")[0] for bottom in node.input} <= set(names[:i])
    read_nodes = {bottom.partition(":")[0] for node in nodes for bottom in node.input}
    assert len(set(names) - read_nodes) < len(names) / 4


def test_a_resumed_run_replaces_later_events(tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import SessionLog

    train(make_small_solver(tmp_path), TensorBoard(tmp_path / "tb"))
    train(make_small_solver(tmp_path), TensorBoard(tmp_path / "tb"), resume=tmp_path / "small.orbax" / "4")
    first, second = sorted((tmp_path / "tb").iterdir())
    for file, step in (first, 0), (second, 4):
        starts = [e for e in read_events(file) if e.HasField("session_log")]
        assert [(e.step, e.session_log.status) for e in starts] == [(step, SessionLog.START)]


def test_without_tests_params_are_written_at_snapshots(tmp_path: Path) -> None:
    train(make_small_solver(tmp_path, "max_iter: 3 snapshot: 2"), TensorBoard(tmp_path / "tb"))
    (file,) = (tmp_path / "tb").iterdir()
    assert collect_values(read_events(file), "histo")["params/conv/weight"].keys() == {2, 3}


def test_unwritable_folders_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    solver = make_small_solver(tmp_path)
    with pytest.raises(
        CaffejaxError, match="file: cannot be written: File exists; there is a file where a folder is needed"
    ):
        train(solver, TensorBoard(tmp_path / "file"))
    assert solver.iteration == 0
    monkeypatch.setattr(tensorboard, "is_first", lambda: False)
    train(make_small_solver(tmp_path), TensorBoard(tmp_path / "others"))
    assert not (tmp_path / "others").exists()
    monkeypatch.undo()
    from tensorboardX.record_writer import RecordWriter

    def raise_disk_full(writer: Any, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    recorder, solver = TensorBoard(tmp_path / "tb"), make_small_solver(tmp_path)
    solver.callbacks.append(lambda _: monkeypatch.setattr(RecordWriter, "write", raise_disk_full))
    with caplog.at_level(logging.WARNING, logger="caffejax"):
        train(solver, recorder)
    assert solver.iteration == 6
    assert len([r for r in caplog.records if "events cannot be written (No space left" in r.message]) == 1


def test_without_tensorboardx_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(CaffejaxError, match=r"pip install tensorboardX"):
        TensorBoard("x")
