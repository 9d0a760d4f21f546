"""Using a net in a process forked after JAX has run is an error; other start methods work."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")

PREAMBLE = '''
import multiprocessing, os, pickle, sys, warnings
import numpy as np

NET = """layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
      inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }"""
INPUTS = {"x": np.ones((2, 3), np.float32)}


def forward():
    import jax
    from caffejax import Net
    net = Net(NET)
    return np.asarray(net.forward(*net.init(jax.random.key(0)), INPUTS)[0]["ip"]).tolist()


def call_or_describe_error(call):
    """What a child says: the error's class and message, or what was computed."""
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def run_in_child(call):
    """Call in a fork; return what it gives."""
    read_fd, write_fd = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        os.write(write_fd, pickle.dumps(call_or_describe_error(call)))
        os._exit(0)
    os.waitpid(child, 0)
    return pickle.loads(os.read(read_fd, 100_000))
'''

FORK_AFTER_JAX = """
if __name__ == "__main__":
    import jax
    from caffejax import Net
    net = Net(NET)
    variables = net.init(jax.random.key(0))
    frozen = net.freeze(variables)
    net.forward(*variables, INPUTS), frozen(INPUTS)
    calls = {
        "init": lambda: net.init(jax.random.key(0)),
        "apply": lambda: net.apply(*variables, INPUTS),
        "forward": lambda: net.forward(*variables, INPUTS),
        "frozen": lambda: frozen(INPUTS),
        "compile": lambda: frozen.with_batch(7),
        "another": lambda: Net(NET).freeze(variables),
    }
    for name, call in calls.items():
        result = run_in_child(call)
        assert result.startswith("CaffejaxError: this process was forked after JAX had started"), (name, result)
        assert "spawn or forkserver" in result
    assert run_in_child(lambda: Net(NET).graph.outputs) == ("ip",)
    assert run_in_child(lambda: run_in_child(calls["apply"])).startswith("CaffejaxError")
    net.forward(*variables, INPUTS), frozen(INPUTS)  # here nothing has changed
    print("done")
"""
FORK_BEFORE_JAX = """
if __name__ == "__main__":
    import caffejax.core.program.net
    child_result = run_in_child(forward)
    assert child_result == forward(), child_result
    print("done")
"""
SPAWN_AND_FORKSERVER = """
if __name__ == "__main__":
    parent_result = forward()
    for method in ("spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert pool.apply(forward) == parent_result
    print("done")
"""


@pytest.mark.parametrize(
    "script",
    [
        FORK_AFTER_JAX,
        pytest.param(FORK_BEFORE_JAX, marks=pytest.mark.long),
        pytest.param(SPAWN_AND_FORKSERVER, marks=pytest.mark.long),
    ],
    ids=["after", "before", "others"],
)
def test_nets_run_in_children_only_if_forked_before_jax(script: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(PREAMBLE + textwrap.dedent(script))
    run: Any = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr
