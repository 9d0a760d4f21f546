"""All reasons why a net cannot be exported are reported, and nothing is written."""

import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from caffejax import CaffejaxError, GraphError, Net
from caffejax.core.layers import declare
from caffejax.core.layers.registry import register_temporarily
from caffejax.export import BatchError, make_inference_model
from caffejax.export.onnx import export_onnx, write_onnx
from export.test_stablehlo import CLASSIFICATION

REPOSITORY = Path(__file__).parents[3]

DATA = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }'
RANDOM_DROPOUT = "dropout_param { sample_weights_test: true }"
TWO_RANDOM_LAYERS = f"""
  {DATA} layer {{ name: "one" type: "Dropout" bottom: "data" top: "a" {RANDOM_DROPOUT} }}
  layer {{ name: "two" type: "Dropout" bottom: "data" top: "b" {RANDOM_DROPOUT} }}
  layer {{ name: "after" type: "Eltwise" bottom: "a" bottom: "b" top: "sum" }}
"""
FIXED_BATCH = (
    f'{DATA} layer {{ name: "shape" type: "Reshape" bottom: "data" top: "x" reshape_param {{ shape {{ dim: 6 }} }} }}'
)
ON_HOST = f"""
  {DATA} layer {{ name: "host" type: "Python" bottom: "data" top: "x"
    python_param {{ module: "export.host_layer" layer: "Host" }} }}
"""


def write_net(text: str, path: Path, **options: object) -> None:
    net = Net(text)
    write_onnx(make_inference_model(net, net.init(jax.random.key(0))), path, **options)


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        (CLASSIFICATION, {"opset": 16}, CaffejaxError, "opset must be a number from 17 to 23, not 16"),
        (CLASSIFICATION, {"opset": 99}, CaffejaxError, "not 99"),
        (CLASSIFICATION, {"opset": True}, CaffejaxError, "not True"),
        (CLASSIFICATION, {"opset": "new"}, CaffejaxError, "not 'new'"),
        (
            TWO_RANDOM_LAYERS,
            {"symbolic_batch": False},
            GraphError,
            r"'one' \(Dropout\): .* samples random .*\n.*'two' \(Dropout\): .* samples random",
        ),
        (FIXED_BATCH, {}, BatchError, r"layer 'shape' \(Reshape\)"),
        (ON_HOST, {}, GraphError, r"layer 'host' \(Python\): cannot be exported to ONNX: it runs on the host"),
    ],
)
def test_a_refused_net_is_explained_and_nothing_is_written(
    tmp_path: Path, text: str, options: dict[str, object], error: type[CaffejaxError], message: str
) -> None:
    with pytest.raises(error, match=message) as exc_info:
        write_net(text, tmp_path / "net.onnx", **options)
    assert "after" not in str(exc_info.value)
    assert not list(tmp_path.iterdir())


def test_an_unsupported_jax_function_names_each_layer() -> None:
    unsupported_type = declare("Odd")(lambda x: jax.scipy.special.erfinv(x))
    text = f"""{DATA} layer {{ name: "odd" type: "Odd" bottom: "data" top: "x" }}
      layer {{ name: "relu" type: "ReLU" bottom: "x" top: "x" }}
      layer {{ name: "odder" type: "Odd" bottom: "x" top: "y" }}"""
    with register_temporarily(unsupported_type):
        net = Net(text)
        subject = make_inference_model(net, net.init(jax.random.key(0)))
        problem = r"layer '{}' \(Odd\): .*JAX primitive erf_inv, for which ONNX has no operator"
        with pytest.raises(GraphError, match=rf"^{problem.format('odd')}\n{problem.format('odder')}$"):
            export_onnx(subject)


@pytest.mark.parametrize("path", ["absent/net.onnx", "."])
def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(CaffejaxError, match="cannot be written"):
        write_net(CLASSIFICATION, tmp_path / path)


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    code = "import sys; sys.modules['onnx'] = None; import caffejax.export; import caffejax.export.onnx"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert result.returncode == 1
    last_line = result.stderr.splitlines()[-1]
    assert re.search(r"the package onnx, which writes models, is missing: pip install .*\bonnx\b", last_line)
