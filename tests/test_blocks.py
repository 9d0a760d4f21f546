"""Memory of one run serves the next: the system is not asked for the same pages again and again."""

import concurrent.futures
import os
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.kernels.blocks import keep_blocks

linux = pytest.mark.skipif(sys.platform != "linux", reason="blocks are kept on Linux only")

START = """
import resource
from pathlib import Path

import jax
import numpy as np

from caffejax.net import Net

key = jax.random.key(0)  # JAX's threads have run before
net = Net('''
    layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 256 dim: 3 dim: 64 dim: 64 } } }
    layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 32 kernel_size: 3 } }
    layer { name: "d" type: "Convolution" bottom: "c" top: "d" convolution_param { num_output: 32 kernel_size: 3 } }
    layer { name: "e" type: "Reduction" bottom: "d" top: "e" }
''')
params, state = net.init(key)
inputs = {"x": np.ones((256, 3, 64, 64), np.float32)}

def pages() -> int:  # that the process was given so far
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def resident() -> int:  # pages that it has
    return int(Path("/proc/self/statm").read_text().split()[1])

for _ in range(5):
    before = pages()
    jax.block_until_ready(net.forward(params, state, inputs))
"""
ONE_BLOB = 256 * 32 * 62 * 62 * 4 // 4096  # in pages


def run(script: str, **variables: str) -> int:
    usual = {k: v for k, v in os.environ.items() if k != "CAFFEJAX_BLOCKS"} | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", START + script]
    return int(subprocess.run(command, env=usual | variables, capture_output=True, text=True, check=True).stdout)


@linux
def test_pages_are_kept() -> None:
    assert run("print(pages() - before)") < ONE_BLOB / 10
    assert run("print(pages() - before)", CAFFEJAX_BLOCKS="off") > ONE_BLOB


@linux
def test_what_nobody_asks_for_goes_back() -> None:
    script = """
before = resident()
for _ in range(100):
    jax.block_until_ready(jax.device_put(np.ones(1 << 19, np.float32)) + 1)
print(before - resident())
"""
    assert run(script) > ONE_BLOB / 2


@linux
def test_blocks_hold_what_was_written() -> None:
    """Many threads take, check and give back blocks of many sizes, around the smallest that is kept."""
    assert keep_blocks()
    sizes = np.geomspace(1 << 16, 1 << 21, 12)

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        held: list[tuple[float, jnp.ndarray]] = []
        for _ in range(150):
            number = float(random.integers(1 << 20))
            held.append((number, jnp.full(int(random.choice(sizes)), number)))
            if len(held) > 4:
                expected, array = held.pop(int(random.integers(5)))
                assert (np.asarray(array) == expected).all()

    with concurrent.futures.ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(6)))
