"""The size of training steps on accelerators: counts in lowered programs, and in compiled ones if possible."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from planned_nets import LENET, make_resnet

from caffejax import Net
from caffejax.core.solver.caffe_optimizer import make_optimizer
from caffejax.core.solver.train_step import init_train_state, make_step
from caffejax.tools.planning.planner import SGD

NETS = {"lenet": LENET, "resnet": make_resnet()}
# gradients of weights and inputs, but for the first layer's input; LeNet's first weight's is a product in float32
NUM_CONVOLUTIONS = {"lenet": 2 + 2 + 1, "resnet": 5 + 5 + 4}
NUM_NORMS = {"lenet": 0, "resnet": 4}  # that differ: equal layers are lowered once
PRECISIONS = ("float32", "bfloat16")


def lower_step(name: str, platform: str, precision: Any) -> tuple[str, int]:
    """Return the lowered text of a training step, and the number of arrays that it donates.

    These are all arrays of the state but the optimizer's count, which the iteration replaces.
    """
    net = Net(NETS[name], "TRAIN", precision=precision)
    optimizer, key = make_optimizer(SGD, net), jax.eval_shape(jax.random.key, 0)
    initial_state = jax.eval_shape(lambda key: init_train_state(net.init(key), optimizer, key), key)
    batch = {name: jax.ShapeDtypeStruct((1, *net.graph.blobs[name].shape), jnp.float32) for name in net.input_names}
    step = jax.jit(make_step(net, optimizer, 1), donate_argnums=0)
    traced = step.trace(initial_state, batch, jax.ShapeDtypeStruct((), jnp.float32))
    return traced.lower(lowering_platforms=(platform,)).as_text(), len(jax.tree.leaves(initial_state)) - 1


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("platform", ["tpu", "cuda"])
@pytest.mark.parametrize("name", NETS)
def test_lowered_programs_are_light(name: str, platform: str, precision: str) -> None:
    text, num_donated = lower_step(name, platform, precision)
    assert "f64" not in text
    # no calls to the host, and no layouts forced but of weights' gradients
    assert set(re.findall(r"custom_call @(\w+)", text)) <= ({"LayoutConstraint"} if platform == "cuda" else set())
    assert len(re.findall(r"tf\.aliasing_output|jax\.buffer_donor", text)) == num_donated
    is_product = name == "lenet" and platform == "tpu" and precision == "float32"
    assert text.count("stablehlo.convolution") == NUM_CONVOLUTIONS[name] - is_product
    # of channels, both of a BatchNorm's sums are made of the same numbers: one pass forward, one backward
    channel_sums = re.findall(r"stablehlo\.reduce\([^\n]*across dimensions = \[0, 2, 3\]", text)
    assert len(channel_sums) == 4 * NUM_NORMS[name] + (2 if name == "lenet" else 0)


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_activations_move_in_bfloat16(platform: str) -> None:
    """Blobs between layers are bfloat16; the sums of BatchNorm are float32 within a fusion."""
    text, _ = lower_step("resnet", platform, "bfloat16")
    for line in re.findall(r".*stablehlo\.convolution.*", text):
        assert "f32" not in line.split("->")[-1], line
        assert "xf32" not in line, line


COMPILERS_BY_TARGET = {"tpu:v5e:2x2": "libtpu", "cuda:h100:4": "jax_plugins.xla_cuda12"}
# as compiled when this was written, with some room: collectives, fusions, copies
MAX_COUNTS = {
    ("lenet", "tpu:v5e:2x2"): (1, 36, 44),
    ("lenet", "cuda:h100:4"): (1, 56, 4),
    ("resnet", "tpu:v5e:2x2"): (1, 76, 110),
    ("resnet", "cuda:h100:4"): (1, 118, 16),
}


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def run_plan(file: Path, *flags: str) -> Any:
    """Return the JSON output of `caffejax plan`, in the folder of the file."""
    command = [sys.executable, "-m", "caffejax", "plan", str(file), "--json", *flags]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # for Python layers
    environment.pop("XLA_FLAGS", None)  # libtpu takes none of the CPU's
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=file.parent, env=environment)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("name", "target"), MAX_COUNTS, ids=lambda value: str(value).replace(":", "-"))
def test_compiled_programs_are_light(name: str, target: str, precision: str, tmp_path: Path) -> None:
    if not is_installed(COMPILERS_BY_TARGET[target]):
        pytest.skip(f"{COMPILERS_BY_TARGET[target]} is not installed: pip install 'caffejax[plan-tpu,plan-cuda]'")
    file = tmp_path / "net.prototxt"
    file.write_text(Path(NETS[name]).read_text() if name == "lenet" else make_resnet())
    result = run_plan(file, "--target", target, "--precision", precision, "--largest", "none")
    program = result["program"]
    collectives, fusions, copies = MAX_COUNTS[name, target]
    # in bfloat16 the sums of what stays float32, such as losses and biases' gradients, are one more
    assert sum(c["count"] for c in program["collectives"]) <= collectives + (precision == "bfloat16")
    assert program["num_fusions"] <= fusions
    assert program["num_copies"] <= copies
    assert (program["num_host_calls"], program["num_float64"]) == (0, 0)
    assert program["result_bytes"] < 2**16, "something that is used up comes back in other memory"
    assert result["fits"]


PYTHON_NET = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 4 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "twice" type: "Python" bottom: "ip" top: "top" python_param { module: "doubling_layer" layer: "Double" } }
layer { name: "loss" type: "Reduction" bottom: "top" top: "loss" loss_weight: 1 }
"""


@pytest.mark.parametrize("target", [*COMPILERS_BY_TARGET, "tpu:v5e:1", "cuda:h100:1"])
def test_a_python_layer_is_a_call_to_the_host_in_each_pass(target: str, tmp_path: Path) -> None:
    module = COMPILERS_BY_TARGET[next(name for name in COMPILERS_BY_TARGET if name[:3] == target[:3])]
    if not is_installed(module):
        pytest.skip(f"{module} is not installed: pip install 'caffejax[plan-tpu,plan-cuda]'")
    (tmp_path / "net.prototxt").write_text(PYTHON_NET)
    assert run_plan(tmp_path / "net.prototxt", "--target", target)["program"]["num_host_calls"] == 2
