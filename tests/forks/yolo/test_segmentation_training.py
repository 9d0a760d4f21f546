"""A small net learns boxes' segmentation from AnnotatedData's third top, and its solver scores it."""

import logging
from pathlib import Path

import cv2
import numpy as np
import pytest

from caffejax.base.databases import write_lmdb
from caffejax.core.schema.caffe_pb2 import AnnotatedDatum, Datum
from caffejax.core.solver import Solver

NET = """
layer { name: "d" type: "AnnotatedData" top: "data" top: "label" top: "seg"
  transform_param { scale: 0.01 mean_value: 100 resize_param { height: 32 width: 32 } }
  data_param { source: "db" backend: LMDB batch_size: 4 } annotated_data_param { seg_scales: 8 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 1 kernel_size: 8
  stride: 8 } }
"""
TRAIN = """
layer { name: "h" type: "Reduction" bottom: "seg" top: "h" reduction_param { axis: 3 } }
layer { name: "w" type: "Reduction" bottom: "h" top: "w" reduction_param { axis: 2 } }
layer { name: "loss" type: "YoloSeg" bottom: "conv" bottom: "seg" bottom: "w" top: "loss"
  yolo_seg_param { object_scale: 1 } }
layer { name: "quiet" type: "Silence" bottom: "label" }
"""
TEST = """
layer { name: "p" type: "Sigmoid" bottom: "conv" top: "p" }
layer { name: "eval" type: "SegmentationEvaluate" bottom: "p" bottom: "seg" top: "segmentation_eval" }
layer { name: "det" type: "DummyData" top: "found" dummy_data_param { shape { dim: 1 dim: 1 dim: 1 dim: 7 }
  data_filler { value: 1 } } }
layer { name: "boxes" type: "DetectionEvaluate" bottom: "found" bottom: "label" top: "detection_eval"
  detection_evaluate_param { num_classes: 2 } }
"""


def test_a_net_learns_and_is_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    records = []
    for i in range(4):
        rng = np.random.default_rng(i)
        mask = np.kron(rng.random((4, 4)) < 0.4, np.ones((8, 8))).astype(np.uint8)
        pixels = np.repeat(mask[..., None] * 200, 3, 2)
        datum = Datum(encoded=True, data=cv2.imencode(".png", pixels)[1].tobytes())
        datum.seg_label = cv2.imencode(".png", mask * 255)[1].tobytes()
        message = AnnotatedDatum(datum=datum, type=AnnotatedDatum.BBOXandSeg)
        box = message.annotation_group.add(group_label=1).annotation.add().bbox
        box.xmin, box.ymin, box.xmax, box.ymax = 0.1, 0.1, 0.5, 0.5
        records.append((b"%d" % i, message.SerializeToString()))
    write_lmdb("db", records)
    solver = Solver(
        f"train_net_param {{ {NET} {TRAIN} }} test_net_param {{ {NET} {TEST} }} test_iter: 1 test_interval: 100 "
        'base_lr: 0.02 lr_policy: "fixed" momentum: 0.9 max_iter: 60 snapshot_prefix: "x" '
        'eval_type: "detection_segmentation"'
    )
    assert solver.test()[0].ious["segmentation_eval"][0] == 0
    solver.step(60)
    with caplog.at_level(logging.INFO):
        [scores] = solver.test()
    assert scores.ious["segmentation_eval"][0] == 1
    assert scores.precisions["detection_eval"] == {1: 0}
    assert "Seg mIOU : 1" in caplog.text
