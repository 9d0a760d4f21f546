"""Checks of layers that write files, in the nets of a solver."""

import os
from pathlib import Path

import pytest

from caffejax.base.errors import SolverError
from caffejax.core.solver import Solver

NET = """
layer { name: "x" type: "DummyData" top: "a" top: "b" dummy_data_param { shape { dim: 1 dim: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "a" top: "ip" inner_product_param { num_output: 1 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "b" top: "loss" }
"""


def make_solver(layers: str, settings: str = "") -> Solver:
    return Solver(
        f'net_param {{ {NET} {layers} }} base_lr: 0.1 lr_policy: "fixed" max_iter: 9 snapshot_prefix: "s" '
        f"snapshot_after_train: false {settings}"
    )


def check_each_file_has_one_writer(writer: str) -> None:
    """Check that two nets or layers cannot write one file, where FOLDER and RULE stand for a folder and a rule."""
    layers = writer.replace("FOLDER", str(Path().absolute()))
    tests = "test_iter: 1 test_interval: 5"
    two_tests = 'test_iter: 1 test_iter: 1 test_interval: 5 test_state { stage: "a" } test_state { stage: "b" }'
    second = layers.replace("RULE", "").replace('"out"', '"out2"').replace('"y"', '"y2"').replace('"si"', '"si2"')
    for top in ("loc", "conf", "prior", "det"):
        second = second.replace(f'"{top}"', f'"{top}2"')
    for text, settings, problem in (
        (
            layers.replace("RULE", ""),
            tests,
            "test net #0 would overwrite .*, which layer 'out' of the train net writes",
        ),
        (
            layers.replace("RULE", "include { phase: TEST }"),
            two_tests,
            "test net #1 would .* layer 'out' of test net #0",
        ),
        (layers.replace("RULE", "") + second, "", "'out2' .*the train net would .* layer 'out' of the train net"),
    ):
        with pytest.raises(SolverError, match=problem) as exc_info:
            make_solver(text, settings)
        assert "include { phase" in str(exc_info.value)
    for text, settings in (
        (layers.replace("RULE", "include { phase: TEST }"), tests),
        (layers.replace("RULE", ""), ""),
        (layers.replace("RULE", 'include { phase: TEST stage: "a" }'), two_tests),
    ):
        make_solver(text, settings).close()


def check_folders_can_be_written(
    writer: str, kind: str, monkeypatch: pytest.MonkeyPatch, *, creates_folder: bool = False
) -> None:
    """Check that folders in which a layer of type `kind` cannot write are named when the nets are made."""
    Path("file").write_text("")
    Path("locked").mkdir()
    access = os.access
    monkeypatch.setattr("os.access", lambda path, mode: not str(path).endswith("locked") and access(path, mode))
    for folder, problem in (
        ("absent/deeper", "there is no folder"),
        ("file", "is not a folder"),
        ("locked", "is not writable"),
    ):
        layers = writer.replace("RULE", "include { phase: TEST }").replace("FOLDER", folder)
        if folder.startswith("absent") and creates_folder:
            make_solver(layers, "test_iter: 1 test_interval: 5").close()
            continue
        with pytest.raises(SolverError, match=rf"layer 'out' \({kind}\): cannot write .*{problem}"):
            make_solver(layers, "test_iter: 1 test_interval: 5")
