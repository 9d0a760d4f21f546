"""BN, a layer with params and state, is saved and loaded in every format."""

from pathlib import Path

import jax
import numpy as np
import pytest

from caffejax import Net, Variables, WeightsError, read_net
from caffejax.core.checkpoints.weight_formats import FORMATS, convert

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


def test_blobs_that_two_types_order_differently_are_converted_with_the_model(tmp_path: Path) -> None:
    """BN stores its weight first, BatchNorm with a scale its mean."""
    net, rng = Net(NET, "TRAIN"), np.random.default_rng(1)
    variables = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), net.init(jax.random.key(0)))
    net.save(*variables, tmp_path / "x.npz")
    paths = str(tmp_path / "x.npz"), str(tmp_path / "x.caffemodel")
    with pytest.raises(WeightsError, match=r"'both': the order of its blobs .* name the model with --model"):
        convert(*paths)
    convert(*paths, read_net(NET))
    jax.tree.map(np.testing.assert_array_equal, net.load(paths[1]), Variables(*variables))
