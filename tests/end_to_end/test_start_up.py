"""Imports, random draws and compilations before the first result of a process are only the necessary ones."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import caffejax
import caffejax.pycaffe as caffe
from caffejax.core.layers import bucketed_random
from caffejax.cpu.kernels import onednn_program

NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 12 dim: 12 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: "msra" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param { bias_term: true } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: AVE global_pooling: true } }
layer { name: "fc" type: "InnerProduct" bottom: "pool" top: "fc"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""

PROGRAM = """
import json, sys
import numpy as np
import caffejax
net = caffejax.Net(sys.argv[1])
call = net.freeze(net.load(sys.argv[2]))
call({"data": np.zeros((1, 3, 12, 12), np.float32)})
import caffejax.pycaffe as caffe
net = caffe.Net(sys.argv[1], sys.argv[2], caffe.TEST)
net.forward()
print(json.dumps(sorted(sys.modules)))
"""

SOLVER_PROGRAM = """
import json, sys
import caffejax
layers = 'layer { name: "p" type: "Parameter" top: "p" parameter_param { shape { dim: 2 } } } '
layers += 'layer { name: "loss" type: "Reduction" bottom: "p" top: "loss" loss_weight: 1 }'
caffejax.Solver(f"net_param {{ {layers} }} base_lr: 1 lr_policy: 'fixed' snapshot_prefix: 'x'").step(1)
print(json.dumps(sorted(sys.modules)))
"""

compiled_kernels = pytest.mark.skipif(not onednn_program.is_available(), reason="needs the compiled kernels")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A prototxt and weights for all of its layers."""
    folder = tmp_path_factory.mktemp("start")
    prototxt, weights = str(folder / "net.prototxt"), str(folder / "net.caffemodel")
    Path(prototxt).write_text(NET)
    net = caffejax.Net(prototxt)
    net.save(*net.init(jax.random.key(1)), weights)
    return prototxt, weights


@compiled_kernels
def test_inference_does_not_import_training_data_or_export(files: tuple[str, str]) -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM, *files], capture_output=True, text=True, check=True)
    modules = set(json.loads(result.stdout))
    unused = (
        "caffejax.core.solver.trainer",
        "caffejax.export",
        "caffejax.base.databases.lmdb",
        "caffejax.tools.planning",
        "caffejax.tools.view",
    )
    libraries = ("optax", "flax", "orbax", "grain", "lmdb", "cv2", "rich", "scipy", "matplotlib", "h5py")
    assert modules.isdisjoint((*unused, *libraries))
    assert "caffejax.core.layers.recurrent" not in modules


def test_training_does_not_import_formats_and_processes_that_it_does_not_use(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SOLVER_PROGRAM]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert set(json.loads(result.stdout)).isdisjoint(("h5py", "lmdb", "matplotlib", "rich", "_posixshmem"))


def test_the_index_of_layer_types_is_up_to_date() -> None:
    script = Path(__file__).parents[2] / "scripts" / "make_layer_index.py"
    result = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_params_from_a_file_are_not_initialized(files: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    draw_calls = []
    original = bucketed_random.bucketed_draw
    monkeypatch.setattr(
        "caffejax.core.layers.fillers.bucketed_draw", lambda *args: draw_calls.append(1) or original(*args)
    )
    net = caffejax.Net(files[0])
    net.load(files[1])
    caffe.Net(*files, caffe.TEST)
    assert not draw_calls
    drawn_by_init = net.init(jax.random.key(0)).params["fc"]["weight"]
    renamed_net = caffejax.Net(NET.replace('name: "fc"', 'name: "fc2"'))
    variables = renamed_net.load(files[1])
    assert draw_calls
    np.testing.assert_array_equal(
        variables.params["fc2"]["weight"], renamed_net.init(jax.random.key(0)).params["fc2"]["weight"]
    )
    assert not np.array_equal(variables.params["fc2"]["weight"], drawn_by_init)


@compiled_kernels
def test_nothing_is_traced_or_compiled_if_all_layers_run_as_programs(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference_net = caffejax.Net(files[0], kernels="reference")
    variables = reference_net.load(files[1])
    x = np.random.default_rng(0).normal(size=(1, 3, 12, 12)).astype(np.float32)
    expected = np.asarray(reference_net.forward(*variables, {"data": x})[0]["prob"])

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("JAX traces, or XLA compiles")

    with monkeypatch.context() as context:
        for function in ("compiler.backend_compile_and_load", "interpreters.partial_eval.trace_to_jaxpr"):
            context.setattr(f"jax._src.{function}", refuse)
        with pytest.raises(AssertionError, match="JAX traces"):
            jax.eval_shape(lambda: 0)
        net = caffejax.Net(files[0])
        call = net.freeze(net.load(files[1]))
        for size in (12, 9, 12):
            result = call({"data": np.resize(x, (1, 3, size, size))})["prob"]
        pycaffe_net = caffe.Net(*files, caffe.TEST)
        pycaffe_net.blobs["data"].data[...] = x
        out = pycaffe_net.forward()["prob"].copy()
        relu = pycaffe_net.blobs["conv"].data.copy()  # a look at a blob that was not wanted
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    blobs = reference_net.forward(*variables, {"data": x}, blobs=["conv"])[0]
    np.testing.assert_allclose(relu, blobs["conv"], rtol=1e-4, atol=1e-5)
