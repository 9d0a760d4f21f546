"""The process settings that caffejax leaves unchanged, and the changes of `tune_process`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from caffejax.cpu.kernels import onednn

LENET = Path(__file__).parents[2] / "configs" / "lenet" / "train_val.prototxt"

# everything that may be seen of a process, before and after
PREAMBLE = f"""
import gc, logging, os, signal, sys, warnings
from pathlib import Path

import absl.logging, grain, optax  # what others do when they are imported is their own affair
import jax
import numpy as np

def describe_process():
    return dict(
        environment=dict(os.environ),
        jax={{name: repr(value) for name, value in jax.config.values.items()}},
        collecting=gc.isenabled(),
        thresholds=gc.get_threshold(),
        import_hooks=[*map(repr, sys.meta_path), *map(repr, sys.path_hooks)],
        path=sys.path[:],
        signals=[repr(signal.getsignal(number)) for number in signal.valid_signals()],
        flags_parsed=absl.flags.FLAGS.is_parsed(),
        log=[(logging.getLogger(n).handlers[:], logging.getLogger(n).level) for n in ("", "caffejax", "jax", "absl")],
        warnings=warnings.filters[:],
        numpy=np.geterr(),
        recursion=sys.getrecursionlimit(),
        trace=(sys.gettrace(), sys.getprofile(), sys.excepthook is sys.__excepthook__),
        files=sorted(map(str, Path(os.environ["HOME"]).rglob("*"))),
    )

jax.devices()  # JAX itself and its backend have started
old_state = describe_process()
import caffejax
from caffejax.cpu.process_settings import is_freed_memory_kept
from caffejax.core.ops.compilation import Jitted

def use_net():
    net = caffejax.Net({str(LENET)!r}, "TRAIN")
    params, state = net.init(jax.random.key(0))
    inputs = {{name: np.zeros(net.graph.blobs[name].shape, np.float32) for name in net.input_names}}
    net.forward(params, state, inputs)
    grads, _ = jax.grad(net.loss, has_aux=True)(params, state, inputs, jax.random.key(1))
    return jax.block_until_ready(grads)

def find_changes():
    new_state = describe_process()
    return [name for name in old_state if old_state[name] != new_state[name]]
"""


def run_script(script: str, home: Path, preamble: str = PREAMBLE, **variables: str) -> str:
    """Return the output of a script, run in a separate process with an empty home."""
    removed_variables = (
        *("CAFFEJAX_CACHE", "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"),
        *("CAFFEJAX_KEEP_FREED_MEMORY", "OMP_WAIT_POLICY", "XDG_CACHE_HOME"),
    )
    environment = {k: v for k, v in os.environ.items() if k not in removed_variables} | {
        "HOME": str(home),
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-c", preamble + script]
    result = subprocess.run(command, env=environment | variables, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout + (result.stderr if "OMP_DISPLAY_ENV" in variables else "")


@pytest.mark.long
def test_nets_do_not_change_the_process(tmp_path: Path) -> None:
    script = """
use_net()
assert find_changes() == [], find_changes()
assert not is_freed_memory_kept() and Jitted.allows_gc
"""
    run_script(script, tmp_path)


def test_data_workers_do_not_parse_absl_flags(tmp_path: Path) -> None:
    digits = LENET.parents[1] / "digits" / "lenet_train_test.prototxt"
    script = f"""
net = caffejax.Net({str(digits)!r}, "TRAIN", workers=1)
(source,) = net.sources().values()
next(source)
source.close()
assert find_changes() == [], find_changes()
"""
    run_script(script, tmp_path)


@pytest.mark.long
def test_tune_process_changes_all_settings(tmp_path: Path) -> None:
    script = """
caffejax.tune_process()
caffejax.tune_process()
use_net()
assert find_changes() == ["jax", "files"], find_changes()
names = [name for name, value in old_state["jax"].items() if describe_process()["jax"][name] != value]
print(*names)
assert Path(jax.config.jax_compilation_cache_dir).is_relative_to(Path.home() / ".cache" / "caffejax")
assert not Jitted.allows_gc
assert is_freed_memory_kept() == (sys.platform == "linux")
"""
    expected = {"jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"}
    assert set(run_script(script, tmp_path).split()) == expected


@pytest.mark.long
def test_environment_variables_switch_settings_off(tmp_path: Path) -> None:
    script = """
caffejax.tune_process()
use_net()
assert find_changes() == [], find_changes()
assert not is_freed_memory_kept()
"""
    run_script(script, tmp_path, CAFFEJAX_CACHE="off", CAFFEJAX_KEEP_FREED_MEMORY="off")


@pytest.mark.parametrize(
    ("modules", "tune"),
    [
        (["caffejax"], True),
        (["caffejax.pycaffe"], True),
        (["caffejax", "caffejax.pycaffe"], False),  # both in one process, which they leave as it is
    ],
)
def test_solvers_tune_the_process_only_if_requested(modules: list[str], tune: bool, tmp_path: Path) -> None:
    (tmp_path / "solver.prototxt").write_text("""
        base_lr: 0.1 lr_policy: "fixed" max_iter: 1 snapshot_prefix: "x" net_param {
          layer { name: "d" type: "DummyData" top: "d" dummy_data_param { shape { dim: 1 dim: 2 } } }
          layer { name: "f" type: "InnerProduct" bottom: "d" top: "f" inner_product_param { num_output: 1 } }
          layer { name: "l" type: "Reduction" bottom: "f" top: "l" loss_weight: 1 }
        }""")
    option = "tune=True" if tune else ""
    lines = [f'import {name}; {name}.Solver(os.path.expanduser("~/solver.prototxt"), {option})' for name in modules]
    script = "\n".join(["", *lines, "print(Jitted.allows_gc, jax.config.jax_compilation_cache_dir is None)", ""])
    assert run_script(script, tmp_path).split() == [str(not tune)] * 2


@pytest.mark.long
def test_only_the_command_line_tunes_the_process(tmp_path: Path) -> None:
    script = f"""
import caffejax.cli, caffejax.pycaffe as caffe
caffe.Net({str(LENET)!r}, caffe.TEST)
caffejax.cli.main(["parse_log", "absent", "absent"])
assert find_changes() == [], find_changes()
assert Jitted.allows_gc and not is_freed_memory_kept()
assert caffejax.cli.main(["summary", "--memory", {str(LENET)!r}]) == 0
assert not Jitted.allows_gc
"""
    run_script(script, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("call", "sleeps_soon"), [("caffejax.cpu.process_settings.limit_openmp_spinning()", True), ("use_net()", False)]
)
def test_openmp_threads_sleep_soon_only_if_requested(call: str, sleeps_soon: bool, tmp_path: Path) -> None:
    """OpenMP prints what it goes by when it is loaded: by itself it spins 15 times as long, or for ever."""
    if onednn.unavailable_reason() is not None:
        pytest.skip("needs oneDNN")
    output = run_script(
        f"import caffejax.cpu.process_settings\n{call}\nassert find_changes() == []",
        tmp_path,
        OMP_DISPLAY_ENV="verbose",
    )
    assert ("GOMP_SPINCOUNT = '2000'" in output) == sleeps_soon
    assert output.count("GOMP_SPINCOUNT") == 1


PAGE_FAULT_SCRIPT = """
import resource
from caffejax.cpu.process_settings import keep_freed_memory

keep_freed_memory()  # before JAX starts its threads

import caffejax, jax
import numpy as np

net = caffejax.Net('''
    layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 256 dim: 3 dim: 64 dim: 64 } } }
    layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 32 kernel_size: 3 } }
    layer { name: "d" type: "Convolution" bottom: "c" top: "d" convolution_param { num_output: 32 kernel_size: 3 } }
    layer { name: "e" type: "Reduction" bottom: "d" top: "e" }
''')
params, state = net.init(jax.random.key(0))
inputs = {"x": np.ones((256, 3, 64, 64), np.float32)}
faults = []
for _ in range(8):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    jax.block_until_ready(net.forward(params, state, inputs))
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(faults[2:]))  # a busy system may take pages away between two runs
"""
PAGES_PER_BLOB = 256 * 32 * 62 * 62 * 4 // 4096


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc has these settings")
def test_freed_memory_is_reused_by_the_next_run(tmp_path: Path) -> None:
    assert int(run_script(PAGE_FAULT_SCRIPT, tmp_path, "")) < PAGES_PER_BLOB / 10
    assert int(run_script(PAGE_FAULT_SCRIPT, tmp_path, "", CAFFEJAX_KEEP_FREED_MEMORY="off")) > PAGES_PER_BLOB
