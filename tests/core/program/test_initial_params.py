"""The initial values of `Net.init` equal the recorded ones, bit for bit with the recorded version of jax.

`python tests/core/program/test_initial_params.py` records them again, which is right only if they are meant to change.
"""

from __future__ import annotations

import functools
import json
import platform
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from caffejax.core.program.net import Net

sys.path.insert(0, str(Path(__file__).parents[2]))  # also where this runs as a program
from compile_flags import make_optimized_environment

RECORDED = Path(__file__).parents[2] / "golden" / "first_numbers.json"
RECORDED_WITH = "0.10.2"  # jax; other versions compile sums and products that are rounded otherwise

FILLERS = {
    "none": "",
    "constant": 'type: "constant" value: 0.3',
    "uniform": 'type: "uniform" min: -1.5 max: 2.25',
    "gaussian": 'type: "gaussian" std: 0.013',
    "gaussian with mean": 'type: "gaussian" mean: 0.7 std: 2.3',
    "sparse": 'type: "gaussian" std: 0.7 sparse: 2',
    "positive_unitball": 'type: "positive_unitball"',
    "gaussian_unitball": 'type: "gaussian_unitball"',
    "xavier": 'type: "xavier"',
    "xavier by outputs": 'type: "xavier" variance_norm: FAN_OUT',
    "xavier by the mean": 'type: "xavier" variance_norm: AVERAGE',
    "msra": 'type: "msra"',
    "msra by outputs": 'type: "msra" variance_norm: FAN_OUT alpha: 0.25',
    "msra by the mean": 'type: "msra" variance_norm: AVERAGE',
    "bilinear": 'type: "bilinear"',
}
# outputs, and the sizes of an image: of weights of one number, of few, and of more than are drawn at once
SHAPES = {
    "InnerProduct": [(1, (1, 1, 1)), (5, (3, 2, 2)), (10, (1, 1, 77)), (257, (8, 8, 8)), (700, (6, 16, 16))],
    "Convolution": [(7, (3, 5, 5)), (64, (16, 9, 9))],
}
SEEDS = (0, 7, 2**31 - 1)


def _make_net(filler: str, layer_type: str, outputs: int, image: tuple[int, ...]) -> Net:
    sizes = " ".join(f"dim: {n}" for n in (1, *image))
    kernel = "kernel_size: 3" if layer_type == "Convolution" else ""
    field = {"Convolution": "convolution_param", "InnerProduct": "inner_product_param"}[layer_type]
    fillers = (
        f"weight_filler {{ {FILLERS[filler]} }} bias_filler {{ {_get_bias_filler(filler)} }}"
        if filler != "none"
        else ""
    )
    return Net(f"""
        layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ {sizes} }} }} }}
        layer {{ name: "layer" type: "{layer_type}" bottom: "x" top: "y"
          {field} {{ num_output: {outputs} {kernel} {fillers} }} }}
    """)


def _get_bias_filler(filler: str) -> str:
    return 'type: "constant" value: 0.3' if filler in ("bilinear",) else FILLERS[filler]


def _list_cases() -> list[tuple[str, str, int, tuple[int, ...], int]]:
    return [
        (filler, layer_type, *shape, seed)
        for filler in FILLERS
        for layer_type, shapes in SHAPES.items()
        for i, shape in enumerate(shapes)
        for seed in (SEEDS if i == 1 else SEEDS[i % 3 :][:1])
        if filler != "bilinear" or layer_type == "Convolution"
    ]


def _format_case(case: tuple[Any, ...]) -> str:
    filler, layer_type, outputs, image, seed = case
    return f"{filler} {layer_type} {outputs} of {'x'.join(map(str, image))} seed {seed}"


def _summarize(arrays: Any) -> dict[str, Any]:
    """Return a checksum of all bits, and some numbers of each array to help find differences."""
    numbers = [np.asarray(a) for a in arrays]
    crc = functools.reduce(lambda crc, a: zlib.crc32(a.tobytes(), crc), numbers, 0)
    return {"crc": crc, "numbers": [[float(x) for x in a.ravel()[:: max(1, a.size // 3)][:3]] for a in numbers]}


def _summarize_cases() -> dict[str, Any]:
    """Return summaries of each net's initial arrays; for one case of each filler also those of a compiled `init`."""
    nets = {case: _make_net(*case[:4]) for case in _list_cases()}
    result = {
        case: {"init": _summarize(net.init(jax.random.key(case[4])).params["layer"].values())}
        for case, net in nets.items()
    }
    compiled_cases = [case for case in nets if case[1:] == ("Convolution", *SHAPES["Convolution"][1], SEEDS[0])]
    compiled_params = jax.jit(lambda key: [nets[case].init(key).params["layer"] for case in compiled_cases])(
        jax.random.key(SEEDS[0])
    )
    for case, arrays in zip(compiled_cases, compiled_params, strict=True):
        result[case]["jit"] = _summarize([arrays[name] for name in ("weight", "bias") if name in arrays])
    return {_format_case(case): summaries for case, summaries in result.items()}


def test_initial_params_equal_the_recorded_ones() -> None:
    """Runs in a process with the default compiler options, which determine how sums and products are rounded."""
    command = [sys.executable, __file__, "--print"]
    process = subprocess.run(command, capture_output=True, text=True, check=True, env=make_optimized_environment())
    result, recorded = json.loads(process.stdout), json.loads(RECORDED.read_text())
    assert result.keys() == recorded.keys()
    mismatches = []
    for name, summaries in result.items():
        assert summaries.keys() == recorded[name].keys()
        for mode, summary in summaries.items():
            numbers = (np.concatenate(values["numbers"]) for values in (summary, recorded[name][mode]))
            np.testing.assert_allclose(*numbers, rtol=1e-5, atol=1e-7, err_msg=f"{name}: {mode}")
            if summary["crc"] != recorded[name][mode]["crc"]:
                mismatches.append(f"{name}: {mode}")
    if platform.machine() == "x86_64" and jax.__version__ == RECORDED_WITH:  # elsewhere rounding differs
        # a compiled sum is added in vectors whose length depends on the processor
        assert not [name for name in mismatches if not (name.startswith("gaussian_unitball") and name.endswith("jit"))]


@pytest.mark.parametrize("filler", FILLERS)
def test_abstract_init_has_the_same_shapes(filler: str) -> None:
    net = _make_net(filler, "Convolution", 7, (3, 5, 5))
    variables, shapes = net.init(jax.random.key(1)), jax.eval_shape(net.init, jax.random.key(1))
    assert jax.tree.map(lambda a: (a.shape, a.dtype), variables) == jax.tree.map(lambda a: (a.shape, a.dtype), shapes)


@pytest.mark.parametrize("filler", ["gaussian with mean", "xavier", "constant"])
def test_sharded_params_equal_unsharded_params(filler: str) -> None:
    """With `shardings`, a compiled program makes each array; on a single device, arrays are not split."""
    net, key = _make_net(filler, "InnerProduct", 10, (1, 1, 77)), jax.random.key(7)
    mesh = Mesh(np.array(jax.devices()[:1]), ("d",))
    sharding = NamedSharding(mesh, PartitionSpec("d"))
    result = net.init(key, shardings={"layer": (sharding, sharding)})
    jax.tree.map(np.testing.assert_array_equal, result, net.init(key))


def main() -> None:
    if sys.argv[1:] == ["--print"]:
        print(json.dumps(_summarize_cases()))
    else:
        RECORDED.write_text(json.dumps(_summarize_cases()).replace("}}, ", "}},\n") + "\n")


if __name__ == "__main__":
    main()
