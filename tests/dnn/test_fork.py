"""Processes that are forked after a net was read, as scripts for OpenCV do, run it; see `caffejax.base.fork_guard`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "golden" / "opencv_dnn"
SCRIPT = f"""
import os, sys
import numpy as np
import caffejax.dnn as dnn
def read(name):
    return dnn.readNetFromCaffe("{FOLDER}/%s.prototxt" % name, "{FOLDER}/%s.caffemodel" % name)

text = b'''input: "data" layer {{ name: "s" type: "Softmax" bottom: "data" top: "s" }}'''
nets = [read("maps"), read("boxes"), dnn.readNetFromCaffe(text)]
deploy, files = open("{FOLDER}/boxes.prototxt").read(), '''detection_output_param {{
  save_output_param {{ output_directory: "o" output_format: "VOC" label_map_file: "m" name_size_file: "n" }}'''
dnn.readNetFromCaffe(deploy.replace("detection_output_param {{", files).encode())
model = dnn.DetectionModel(nets[1])
nets[0].setParam("maps", 1, nets[0].getParam("maps", 1))
nets[0].getLayersShapes((1, 3, 8, 12))
nets[0].setInput(np.ones((1, 3, 8, 12)))
from caffejax.base import fork_guard
assert not fork_guard._has_started_jax()

def run_in_child():
    child = os.fork()
    if not child:
        try:
            print(nets[0].forward().shape, flush=True)
            nets[2].setInput(np.ones((1, 4)))
            print(nets[2].forward().ravel().tolist(), flush=True)
        except dnn.net.CaffejaxError as error:
            print(str(error)[:60], flush=True)
        os._exit(0)
    os.waitpid(child, 0)

run_in_child()
print(nets[0].forward().shape, flush=True)  # the parent runs it, too
run_in_child()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_forked_after_reading_runs_the_nets(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("".join(f'item {{ name: "{i}" label: {i} }} ' for i in range(9)))
    (tmp_path / "n").write_text("picture 8 8\n")
    command = [sys.executable, "-c", SCRIPT]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert result.stdout.splitlines() == [
        "(1, 5, 6, 10)",
        "[0.25, 0.25, 0.25, 0.25]",
        "(1, 5, 6, 10)",
        "this process was forked after JAX had started, so it lacks t",
    ], result.stderr
