"""Processes forked after JAX has run: told so at once; before, and by spawn and forkserver, nets run there."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")]

START = '''
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


def told(call):
    """What a child says: the error's class and message, or what was computed."""
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def in_fork(call):
    """Call in a fork; return what it gives."""
    back, to = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        os.write(to, pickle.dumps(told(call)))
        os._exit(0)
    os.waitpid(child, 0)
    return pickle.loads(os.read(back, 100_000))
'''

AFTER = """
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
        said = in_fork(call)
        assert said.startswith("CaffejaxError: this process was forked after JAX had started"), (name, said)
        assert "spawn or forkserver" in said
    assert in_fork(lambda: Net(NET).graph.outputs) == ("ip",)
    assert in_fork(lambda: in_fork(calls["apply"])).startswith("CaffejaxError")
    net.forward(*variables, INPUTS), frozen(INPUTS)  # here nothing has changed
    print("told")
"""
BEFORE = """
if __name__ == "__main__":
    import caffejax.net
    there = in_fork(forward)
    assert there == forward(), there
    print("told")
"""
OTHERS = """
if __name__ == "__main__":
    here = forward()
    for method in ("spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert pool.apply(forward) == here
    print("told")
"""


@pytest.mark.parametrize(
    "script",
    [AFTER, pytest.param(BEFORE, marks=pytest.mark.long), pytest.param(OTHERS, marks=pytest.mark.long)],
    ids=["after", "before", "others"],
)
def test_forked_children(script: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(START + textwrap.dedent(script))
    run: Any = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout) == (0, "told\n"), run.stderr
