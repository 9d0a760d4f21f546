"""Training on AnnotatedData: batches of several sizes, several passes in an update, and resuming bit for bit."""

import jax
import numpy as np
import pytest

from caffejax import Solver
from caffejax.forks.detection.data.annotated_datum import write_annotated

pytestmark = pytest.mark.long

NET = """
layer { name: "data" type: "AnnotatedData" top: "data" top: "label"
  transform_param { mirror: true scale: 0.01 mean_value: 100 resize_param { height: 12 width: 12 }
    expand_param { max_expand_ratio: 2 } distort_param { brightness_prob: 0.5 brightness_delta: 32 } }
  data_param { source: "db" batch_size: 2 backend: LMDB }
  annotated_data_param { batch_sampler { max_sample: 1 } batch_sampler { sampler { min_scale: 0.5 } max_sample: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 1
  weight_filler { type: "xavier" } } }
layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 reduction_param { operation: SUMSQ } }
layer { name: "boxes" type: "Reduction" bottom: "label" top: "boxes" loss_weight: 0.1 }
"""


@pytest.mark.parametrize("iter_size", [1, 2])
def test_resumes_bit_for_bit_from_a_checkpoint(iter_size, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("caffejax.forks.detection.data.annotated_data.NUM_COUNTED_RECORDS", 4)
    rng = np.random.default_rng(0)

    def draw_annotated_image(n):
        corners = rng.random((n, 2)) * 0.4
        objects = np.zeros((n, 7), np.float32)
        objects[:, 2:6] = np.concatenate([corners, corners + 0.3], axis=1)
        return rng.integers(0, 256, (30, 40, 3), np.uint8), objects

    # the first four have few boxes, so that one of the others takes more rows than were thought enough
    write_annotated("db", [draw_annotated_image(n) for n in [1, 0, 1, 2, 0, 1, 0, 40, 1, 1, 0, 0, 1]])
    settings = (
        f'net_param {{ {NET} }} base_lr: 1e-5 lr_policy: "fixed" momentum: 0.9 iter_size: {iter_size} '
        'snapshot_prefix: "x" solver_mode: CPU random_seed: 4'
    )
    uninterrupted = Solver(settings)
    assert uninterrupted.net.graph.blobs["label"].shape[2] < 40
    uninterrupted.step(3)
    uninterrupted.snapshot()
    uninterrupted.step(4)
    resumed = Solver(settings)
    resumed.restore("x.orbax")
    resumed.step(4)
    leaves = jax.tree.leaves(uninterrupted.variables)
    for expected, actual in zip(leaves, jax.tree.leaves(resumed.variables), strict=True):
        assert np.isfinite(expected).all()
        np.testing.assert_array_equal(actual, expected)
    uninterrupted.close()
    resumed.close()
