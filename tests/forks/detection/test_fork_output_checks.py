"""Files that layers of forks will write are checked when their nets are made."""

from pathlib import Path

import pytest

from writing_layers import check_each_file_has_one_writer, check_folders_can_be_written

# layers that write, with their files in a folder
MAT_WRITE = 'layer { name: "out" type: "MatWrite" bottom: "ip" mat_write_param { prefix: "FOLDER/out" } RULE }'
DETECTIONS = """
layer { name: "y" type: "DummyData" top: "loc" top: "conf" top: "prior" dummy_data_param {
  shape { dim: 1 dim: 4 } shape { dim: 1 dim: 2 } shape { dim: 1 dim: 2 dim: 4 } } RULE }
layer { name: "out" type: "DetectionOutput" bottom: "loc" bottom: "conf" bottom: "prior" top: "det" RULE
  detection_output_param { num_classes: 2 nms_param { top_k: 1 } save_output_param { output_directory: "FOLDER"
    label_map_file: "labels" name_size_file: "names" output_format: "VOC" } } }
layer { name: "si" type: "Silence" bottom: "det" RULE }"""
WRITERS = {"MatWrite": MAT_WRITE, "DetectionOutput": DETECTIONS}


@pytest.fixture(autouse=True)
def _use_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("kind", WRITERS)
def test_two_nets_or_layers_that_write_one_file_are_refused(kind: str) -> None:
    check_each_file_has_one_writer(WRITERS[kind])


@pytest.mark.parametrize("kind", WRITERS)
def test_folders_that_cannot_be_written_are_named(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_folders_can_be_written(WRITERS[kind], kind, monkeypatch, creates_folder=kind == "DetectionOutput")
