"""Weight files are written in Caffe's form, and either completely or not at all."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from recorded_weights import GOLDEN, read_recorded_blobs

from caffejax.base import atomic_write
from caffejax.base.errors import WeightsError
from caffejax.core.checkpoints.caffemodel import read_caffemodel, write_caffemodel
from caffejax.core.schema import caffe_pb2, read_net


def test_writes_the_same_file_as_caffe(tmp_path):
    caffe_net = caffe_pb2.NetParameter.FromString((GOLDEN / "current.caffemodel").read_bytes())
    path = tmp_path / "ours.caffemodel"
    write_caffemodel(path, caffe_net, read_caffemodel(GOLDEN / "current.caffemodel"))
    assert caffe_pb2.NetParameter.FromString(path.read_bytes()) == caffe_net


def test_writes_diffs_as_snapshot_diff_does(tmp_path):
    caffe_net = caffe_pb2.NetParameter.FromString((GOLDEN / "snapdiff_iter_2.caffemodel").read_bytes())
    recorded = GOLDEN / "snapdiff.npz"
    path = tmp_path / "ours.caffemodel"
    write_caffemodel(path, caffe_net, read_recorded_blobs(recorded), read_recorded_blobs(recorded, "diff"))
    assert caffe_pb2.NetParameter.FromString(path.read_bytes()) == caffe_net


def test_the_nets_phase_is_written(tmp_path):
    net = read_net("state { phase: TRAIN } layer { name: 'x' }")
    path = tmp_path / "x.caffemodel"
    write_caffemodel(path, net, {"x": [np.float32(3)]})
    stored_net = caffe_pb2.NetParameter.FromString(path.read_bytes())
    assert stored_net.layer[0].phase == caffe_pb2.TRAIN
    assert read_caffemodel(path)["x"][0].shape == ()


def test_blobs_of_unknown_layers_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(WeightsError, match="no layer 'y'"):
        write_caffemodel(tmp_path / "x", read_net("layer { name: 'x' }"), {"y": []})
    assert list(tmp_path.iterdir()) == []


NET = caffe_pb2.NetParameter(layer=[{"name": "x"}])


def test_a_failed_write_leaves_the_file_unchanged(tmp_path, monkeypatch):
    path = tmp_path / "x.caffemodel"
    write_caffemodel(path, NET, {"x": [np.zeros(3)]})
    content_before = path.read_bytes()

    def raise_disk_full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic_write.os, "fsync", raise_disk_full)
    with pytest.raises(
        WeightsError, match=f"^{path}: cannot be written: No space left on device; free space on the disk"
    ):
        write_caffemodel(path, NET, {"x": [np.ones(3)]})
    assert path.read_bytes() == content_before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic_write, "open", lambda *_: open("/dev/full", "wb"), raising=False)  # noqa: SIM115
    with pytest.raises(WeightsError, match="free space on the disk"):
        write_caffemodel(tmp_path / "x", NET, {"x": [np.zeros(10)]})


def test_a_killed_write_leaves_the_file_unchanged(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"before")
    code = (
        "import os, sys; from caffejax.base.atomic_write import replace_file\n"
        "with replace_file(sys.argv[1]) as file: file.write(b'half'); file.flush(); os._exit(7)"
    )
    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == 7
    assert path.read_bytes() == b"before"


def test_paths_that_cannot_be_written_are_named(tmp_path):
    (tmp_path / "file").touch()
    cases = [
        (tmp_path / "none" / "x", "create the folder"),
        (tmp_path, "not a folder"),
        (tmp_path / "file" / "x", "file"),
    ]
    for path, message in cases:
        with pytest.raises(WeightsError, match=f"^{path}: cannot be written: .*{message}"):
            write_caffemodel(path, NET, {})
    read_only_folder = tmp_path / "locked"
    read_only_folder.mkdir(mode=0o500)
    if not os.access(read_only_folder, os.W_OK):  # root may write all
        with pytest.raises(WeightsError, match="you may not write there"):
            write_caffemodel(read_only_folder / "x", NET, {})


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links")
def test_a_symbolic_link_is_kept(tmp_path):
    (tmp_path / "real").touch()
    (tmp_path / "link").symlink_to("real")
    write_caffemodel(tmp_path / "link", NET, {})
    assert (tmp_path / "link").is_symlink()
    assert "x" in read_caffemodel(tmp_path / "real")
