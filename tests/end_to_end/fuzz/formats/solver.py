"""Solvers in prototxt, with their nets: made, ready to train."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

from caffejax import Solver, read_solver
from caffejax.core.schema.caffe_pb2 import SolverParameter

from ..harness import Files, Harness
from ..mutators.byte_mutations import damage
from ..mutators.proto_text import change_message
from ..mutators.tokens import change_tokens
from ._schema import list_schema_words

_NET = b"""layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 4 dim: 6 } shape { dim: 4 } data_filler { type: "gaussian" } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
_TEXTS = [
    b"""net: "net.prototxt" test_iter: 2 test_interval: 5 base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005
lr_policy: "multistep" gamma: 0.1 stepvalue: 3 stepvalue: 7 display: 1 max_iter: 10 snapshot: 5 snapshot_prefix: "snap"
solver_mode: CPU random_seed: 3 iter_size: 2 average_loss: 2 clip_gradients: 10 regularization_type: "L1" """,
    b"""train_net: "net.prototxt" test_net: "net.prototxt" test_iter: 1 test_interval: 2 type: "Adam"
momentum2: 0.99 delta: 1e-8
lr_policy: "plateau" plateau_winsize: 5 gamma: 0.5 base_lr: 0.1 max_iter: 4
test_state { stage: "x" } snapshot_format: HDF5 """,
    b"""net: "net.prototxt" lr_policy: "poly" power: 2 base_lr: 1 solver_type: RMSPROP rms_decay: 0.9 max_iter: 3
train_state { level: 1 } larc: true larc_policy: "clip" warmup_iter: 2 warmup_start_lr: 0.1
rampup_interval: 2 rampup_lr: 0.1 """,
]


def _make_intact_sets() -> list[Files]:
    return [{"solver.prototxt": text, "net.prototxt": _NET} for text in _TEXTS]


def _mutate(rng: Random, files: Files) -> Files:
    text = files["solver.prototxt"]
    choice = rng.random()
    if choice > 0.5:
        names = ["net.prototxt", "SGD", "Nesterov", "AdaGrad", "AdaDelta", "poly", "inv", "sigmoid", "L2", "x"]
        return {**files, "solver.prototxt": change_message(rng, text, SolverParameter, names)}
    changed_text = damage(rng, text) if choice < 0.1 else change_tokens(rng, text, list_schema_words())
    return {**files, "solver.prototxt": changed_text}


def _read(folder: Path) -> Any:
    working_folder = Path.cwd()
    os.chdir(folder)  # relative prefixes of snapshots are from here
    try:
        read_solver(folder / "solver.prototxt")
        Solver(folder / "solver.prototxt").close()
    finally:
        os.chdir(working_folder)


HARNESS = Harness(_make_intact_sets, _mutate, _read, is_text=True, location_text="")
