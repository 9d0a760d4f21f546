"""Frozen nets reproduce recorded results of Caffe, and in phase TEST the nets they were made from."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from frozen_nets import FAST_COMPILATION, assert_close

from caffejax.base.variables import Variables
from caffejax.core.program.net import Net
from caffejax.cpu.frozen.layer_lowerings import ONEDNN
from golden_cases import ACCEPTED_CASES, format_case_id, is_fork_case

GOLDEN = Path(__file__).parents[2] / "golden"
NETS = [p.stem for p in sorted((GOLDEN / "nets").glob("*.npz"))]


def select_prefix(values: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(f"{prefix}/"): v for k, v in values.items() if k.startswith(f"{prefix}/")}


@pytest.mark.parametrize("name", [n if i % 3 == 1 else pytest.param(n, marks=pytest.mark.long)
                                  for i, n in enumerate(NETS)])  # fmt: skip
def test_frozen_recorded_nets_equal_caffe(name: str) -> None:
    values = dict(np.load(GOLDEN / "nets" / f"{name}.npz"))
    phase = json.loads((GOLDEN / "nets" / f"{name}.json").read_text())["runs"][0]["phase"]
    net = Net(GOLDEN / "nets" / f"{name}.prototxt", phase)
    params = net.map_params(lambda p: values[f"param/{p.slot.layer}/{p.index}"] if p.spec.learnable else None)
    variables, key = Variables(params, net.init(jax.random.key(0)).state), jax.random.key(0)
    output_names = net.for_inference(select_prefix(values, "blob")).outputs  # without copies
    frozen = net.freeze(variables, output_names)
    actual = frozen({n: select_prefix(values, "in")[n] for n in frozen.input_names}, key)
    test_net = net.with_phase("TEST")
    expected = jax.jit(
        lambda v, x: test_net.apply(*v, x, key=key, blobs=output_names)[0], compiler_options=FAST_COMPILATION
    )(variables, select_prefix(values, "in"))  # fmt: skip
    assert_close(actual, expected)
    if phase == "TEST":
        assert_close(actual, {name: values[f"blob/{name}"] for name in output_names})


LAYERS = {
    format_case_id(case): case
    for case in ACCEPTED_CASES
    if (case["phase"] == "TEST" or case["type"] != "BatchNorm")
    and case["type"] in ONEDNN.rules
    and not is_fork_case(case)
    and "forwards" not in case
}


@pytest.mark.parametrize("name", [n if i % 8 == 0 else pytest.param(n, marks=pytest.mark.long)
                                  for i, n in enumerate(LAYERS)])  # fmt: skip
def test_frozen_recorded_layers_equal_the_net(name: str) -> None:
    """Each net has one recorded layer."""
    path = LAYERS[name]["path"]
    values = dict(np.load(path.with_suffix(".npz")))
    net = Net(path.with_suffix(".prototxt"), "TEST")
    layer = net.graph.layer("layer")
    trees = [{"layer": {p.slot.name: values[f"param/{p.index}"] for p in layer.params if p.spec.learnable == is_param}}
             for is_param in (True, False)]  # fmt: skip
    # a Parameter layer is named like its top, whose value is recorded as a bottom
    inputs = {n: {"weight": values[f"bottom/{n}"]} for n in net.init(jax.random.key(0)).params if n != "layer"}
    frozen = net.freeze(Variables(inputs | trees[0], trees[1]), layer.tops)
    actual = frozen({name: values[f"bottom/{name}"] for name in frozen.input_names}, jax.random.key(0))
    for top in layer.tops:  # one that lies in place of an input has another name
        assert_close({top: actual.get(top, actual.get(f"{top}/layer"))}, {top: values[f"top/{top}"]})
