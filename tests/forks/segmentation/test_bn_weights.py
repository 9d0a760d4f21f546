"""BN, a layer with params and state, is saved and loaded in every format."""

from pathlib import Path

import jax
import numpy as np
import pytest

from caffejax import Net, Variables
from caffejax.core.checkpoints.weight_formats import FORMATS

NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 4 dim: 4 } } }
layer { name: "both" type: "BN" bottom: "data" top: "both" bn_param { slope_filler { value: 2 } } }
"""


@pytest.mark.parametrize("suffix", [*FORMATS, ".caffemodel.h5", ".orbax/7"])
def test_saved_weights_can_be_loaded(suffix: str, tmp_path: Path) -> None:
    net, rng = Net(NET, "TRAIN"), np.random.default_rng(1)
    variables = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), net.init(jax.random.key(0)))
    net.save(*variables, tmp_path / f"x{suffix}")
    loaded, report = net.load_and_report(tmp_path / f"x{suffix}")
    assert jax.tree.structure(loaded) == jax.tree.structure(Variables(*variables))
    jax.tree.map(np.testing.assert_array_equal, loaded, Variables(*variables))
    assert (set(report.loaded), report.unused, report.missing) == ({"both"}, (), ())
