"""Compiled programs, calls of oneDNN included, are cached on disk unless the cache is turned off."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import jax
import numpy as np
from jax import monitoring

from caffejax import Net
from caffejax.cpu.process_settings import enable_compilation_cache

enable_compilation_cache()
hits = []
monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith("cache_hits") else None)
net = Net('''
    layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 9 dim: 9 } } }
    layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 4 kernel_size: 3 } }
''')
params, state = net.init(jax.random.key(0))
inputs = {"x": np.ones((2, 3, 9, 9), np.float32)}
before = len(hits)
net.forward(params, state, inputs)
print(len(hits) - before, jax.config.jax_compilation_cache_dir)
"""


def count_cache_hits(**variables: str) -> tuple[int, str]:
    """How often the compiled forward pass was found, and the folder it is kept in."""
    settings = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PLATFORMS": "cpu"}
    environment = {k: v for k, v in os.environ.items() if k not in ("CAFFEJAX_CACHE", "JAX_COMPILATION_CACHE_DIR")}
    command = [sys.executable, "-c", SCRIPT]
    process = subprocess.run(
        command, env=environment | settings | variables, capture_output=True, text=True, check=True
    )
    assert "error" not in process.stderr.lower(), process.stderr
    result, folder = process.stdout.split(maxsplit=1)
    return int(result), folder.strip()


def test_the_cache_folder_can_be_set(tmp_path: Path) -> None:
    code = "import sys, jax; from caffejax.cpu.process_settings import enable_compilation_cache as enable; "
    code += "enable(sys.argv[1]); enable('elsewhere'); print(jax.config.jax_compilation_cache_dir)"
    environment = {k: v for k, v in os.environ.items() if k not in ("CAFFEJAX_CACHE", "JAX_COMPILATION_CACHE_DIR")}
    result = subprocess.run(
        [sys.executable, "-c", code, tmp_path], env=environment, capture_output=True, text=True, check=True
    )
    assert Path(result.stdout.strip()).parent == tmp_path


def test_compiled_nets_are_loaded_from_the_cache(tmp_path: Path) -> None:
    result, folder = count_cache_hits(HOME=str(tmp_path), XDG_CACHE_HOME="")
    assert result == 0
    assert Path(folder).is_relative_to(tmp_path / ".cache" / "caffejax")
    assert count_cache_hits(HOME=str(tmp_path), XDG_CACHE_HOME="")[0] > 0
    assert Path(count_cache_hits(XDG_CACHE_HOME=str(tmp_path))[1]).is_relative_to(tmp_path / "caffejax")


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"CAFFEJAX_CACHE": "off"}, "None"),
        ({"CAFFEJAX_CACHE": "off", "JAX_COMPILATION_CACHE_DIR": "{}"}, "{}"),
        ({"JAX_COMPILATION_CACHE_DIR": "{}"}, "{}"),
    ],
)
def test_settings_of_the_user_are_not_changed(variables: dict[str, str], folder: str, tmp_path: Path) -> None:
    inputs = {name: value.format(tmp_path) for name, value in variables.items()}
    assert count_cache_hits(HOME=str(tmp_path), **inputs)[1] == folder.format(tmp_path)


def test_kernels_that_xla_chooses_on_gpus_are_kept_beside_the_programs(tmp_path: Path) -> None:
    """The value is a flag of XLA, for which JAX names a folder in the folder of compiled programs."""
    code = "import jax; from caffejax.cpu.process_settings import enable_compilation_cache as enable; enable('x'); "
    code += "flag = jax.config.jax_persistent_cache_enable_xla_caches; print(flag); "
    code += "print(jax.jit(lambda: 7, compiler_options={flag: 'y'})())"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CAFFEJAX_CACHE", "JAX_"))}
    environment["JAX_PLATFORMS"] = "cpu"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert result.stdout.split() == ["xla_gpu_per_fusion_autotune_cache_dir", "7"]
