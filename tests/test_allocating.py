"""Memory of one run serves the next: the system is not asked for the same pages again and again."""

import ctypes
import os
import subprocess
import sys

import pytest

SCRIPT = """
import resource

import numpy as np

from caffejax.net import Net

net = Net('''
    layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 256 dim: 3 dim: 64 dim: 64 } } }
    layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 32 kernel_size: 3 } }
    layer { name: "d" type: "Convolution" bottom: "c" top: "d" convolution_param { num_output: 32 kernel_size: 3 } }
    layer { name: "e" type: "Reduction" bottom: "d" top: "e" }
''')
import jax

params, state = net.init(jax.random.key(0))
inputs = {"x": np.ones((256, 3, 64, 64), np.float32)}
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    before = faults()
    jax.block_until_ready(net.forward(params, state, inputs))
print(faults() - before)
"""


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None) if os.name == "posix" else None, "mallopt"), reason="the allocator is not glibc's"
)
@pytest.mark.parametrize(
    ("variables", "kept"), [({}, True), ({"CAFFEJAX_MALLOC": "off"}, False), ({"MALLOC_TOP_PAD_": "0"}, False)]
)
def test_pages_are_kept(variables: dict[str, str], kept: bool) -> None:
    usual = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "CAFFEJAX_MALLOC", "GLIBC_TUN"))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=usual | {"JAX_PLATFORMS": "cpu"} | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    one_blob = 256 * 32 * 62 * 62 * 4 // 4096  # in pages
    assert (int(done.stdout) < one_blob / 10) == kept, done.stdout
