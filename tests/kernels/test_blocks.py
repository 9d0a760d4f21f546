"""Memory of one run serves the next: the system is not asked for the same pages again and again."""

import concurrent.futures
import os
import subprocess
import sys
import textwrap

import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.kernels.blocks import keep_blocks, kept

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="blocks are kept on Linux only")

START = """
import resource
from pathlib import Path

import jax
import numpy as np

from caffejax.net import Net
from caffejax.process import keep_memory

keep_memory(seconds=PATIENCE)
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


def child(script: str, **variables: str) -> str:
    """What a script in a process of its own prints."""
    usual = {k: v for k, v in os.environ.items() if k != "CAFFEJAX_BLOCKS"} | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=usual | variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(script: str, patience: float = 60, **variables: str) -> int:
    return int(child(START.replace("PATIENCE", str(patience)) + script, **variables))


@pytest.mark.slow
def test_pages_are_kept() -> None:
    assert run("print(pages() - before)") < ONE_BLOB / 10
    assert run("print(pages() - before)", CAFFEJAX_BLOCKS="off") > ONE_BLOB


def test_what_nobody_asks_for_goes_back_after_a_while() -> None:
    script = """
import time
before = resident()
for _ in range(600):
    time.sleep(0.1)
    if before - resident() > %d:
        break
print(before - resident())
"""
    assert run(script % (ONE_BLOB / 2), patience=1) > ONE_BLOB / 2


def test_blocks_hold_what_was_written() -> None:
    """Many threads take, check and give back blocks of many sizes, around the smallest that is kept."""
    assert keep_blocks()
    assert kept()
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


# What follows asks the allocator itself, in processes of their own in which nobody else does: no jaxlib is loaded.

ASK = """
import ctypes, errno, os, resource, sys, time
from caffejax.kernels.blocks import library

MiB = 1 << 20
blocks = library()
libc = ctypes.CDLL(None)
blocks.caffejax_free.argtypes = libc.free.argtypes = [ctypes.c_void_p]
libc.malloc_usable_size.argtypes, libc.malloc_usable_size.restype = [ctypes.c_void_p], ctypes.c_size_t
blocks.caffejax_allocate.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
free, idle = blocks.caffejax_free, blocks.caffejax_idle

def keep(seconds=60.0, most=1 << 40):
    assert blocks.caffejax_keep_blocks(ctypes.c_double(seconds), ctypes.c_size_t(most)) == 0  # there is no jaxlib

def refusal(size, alignment=64):
    place = ctypes.c_void_p(1234)
    error = blocks.caffejax_allocate(ctypes.byref(place), alignment, size)
    assert error and place.value == 1234, "what was given must be as it was"
    return error

def take(size, alignment=64):
    place = ctypes.c_void_p()
    assert blocks.caffejax_allocate(ctypes.byref(place), alignment, size) == 0
    assert place.value % alignment == 0 and libc.malloc_usable_size(place) >= size
    ctypes.memset(place, 7, size)
    return place.value

def wait_for(holds):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)

def threads():
    return len(os.listdir("/proc/self/task"))

keep()
"""


def ask(script: str) -> None:
    child(ASK + textwrap.dedent(script))


def test_a_block_is_given_again_where_it_fits() -> None:
    ask("""
        a, b = take(8 * MiB), take(20 * MiB)
        free(a), free(b)
        assert idle() >= 28 * MiB
        assert take(21 * MiB + 1 * MiB // 2) not in (a,)
        assert take(7 * MiB) == a, "the smallest that is large enough"
        assert take(2 * MiB) not in (a, b), "none that is much larger"
        assert take(100) % 16 == 0 and idle() < 28 * MiB
        small = take(MiB // 2)
        before = idle()
        free(small), free(None)
        assert idle() == before
    """)


@pytest.mark.parametrize("alignment", [8, 64, 4096, 1 << 21])
def test_alignments_are_kept(alignment: int) -> None:
    ask(f"""
        first = take(4 * MiB, 64)
        free(first)
        assert take(4 * MiB, {alignment}) == first
        take(4 * MiB, 8 * MiB)  # more than blocks have
    """)


def test_requests_that_make_no_sense_are_refused_as_the_c_library_does() -> None:
    ask("""
        for alignment in (0, 1, 4, 24, 3 * MiB):
            assert refusal(4 * MiB, alignment) == errno.EINVAL
    """)


def test_sizes_that_overflow_are_refused() -> None:
    ask("""
        free(take(4 * MiB))
        for size in (2**64 - 1, 2**64 - 2 * MiB, 2**63, 2**63 - 1, 2**63 - 2 * MiB, 2**62):
            assert refusal(size) == errno.ENOMEM
    """)


def test_any_library_may_free_a_block() -> None:
    """Its life is over then; the one that comes to lie there next is another."""
    ask("""
        for size in (MiB, 3 * MiB, 64 * MiB):
            block = take(size)
            free(block)
            assert take(size) == block
            libc.free(block)
            assert idle() == 0
            others = [take(size) for _ in range(4)]
            assert len(set(others)) == 4
            for other in others:
                free(other)
            assert sorted(take(size) for _ in range(4)) == sorted(others)
    """)


def test_a_block_goes_back_when_its_time_is_over_and_the_thread_with_the_last() -> None:
    ask("""
        before = threads()
        free(take(8 * MiB))
        assert threads() == before + 1
        keep(0.2)  # also for what is idle already
        wait_for(lambda: idle() == 0 and threads() == before)
        for _ in range(2):
            keep(0.05)
            free(take(16 * MiB))
            wait_for(lambda: idle() == 0 and threads() == before)
    """)


def test_what_is_in_use_stays() -> None:
    ask("""
        keep(0.05)
        block = take(8 * MiB)
        free(take(4 * MiB))
        wait_for(lambda: idle() == 0)
        assert ctypes.string_at(block, 8 * MiB) == bytes([7]) * (8 * MiB)
    """)


def test_no_more_than_a_share_is_idle() -> None:
    ask("""
        keep(most=40 * MiB)
        held = [take(10 * MiB) for _ in range(8)]
        for block in held:
            free(block)
            assert idle() <= 40 * MiB
        assert idle() >= 20 * MiB
        assert take(10 * MiB) == held[-1], "the longest idle go first"
        large = take(50 * MiB)
        free(held[-1])
        before = idle()
        free(large)
        assert idle() == before >= 10 * MiB, "what is more than the share alone does not drive out others"
        keep(most=0)
        assert idle() == 0
    """)


def test_idle_memory_and_a_new_block_stay_within_the_share() -> None:
    """Under a control group's limit nothing is refused: who takes more is killed."""
    ask("""
        keep(most=40 * MiB)
        held = [take(10 * MiB) for _ in range(3)]
        for block in held:
            free(block)
        assert 30 * MiB <= idle() < 40 * MiB
        small = take(4 * MiB)
        assert idle() >= 30 * MiB, "there is room for both"
        new = take(25 * MiB)
        assert 10 * MiB <= idle() <= 15 * MiB
        assert take(10 * MiB) == held[-1], "the longest idle went"
        free(take(4 * MiB)), free(small)
        take(100 * MiB)
        assert idle() == 0
    """)


@pytest.mark.slow
def test_arrays_are_made_of_idle_memory_under_a_limit() -> None:
    """300 MiB are freed; then 450 MiB are wanted, of which there are 250 besides."""
    child("""
import resource
import jax.numpy as jnp
from caffejax.kernels.blocks import library
from caffejax.process import keep_memory

assert keep_memory(seconds=60)
MiB = 1 << 20
jnp.zeros(1024).block_until_ready()
held = [jnp.zeros(50 * MiB // 4).block_until_ready() for _ in range(6)]
del held
assert library().caffejax_idle() >= 300 * MiB
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 250 * MiB, used + 250 * MiB))
assert jnp.zeros(450 * MiB // 4).block_until_ready()[-1] == 0
""")


def test_idle_memory_goes_back_before_a_request_is_refused() -> None:
    ask("""
        for block in [take(100 * MiB) for _ in range(8)]:
            free(block)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 100 * MiB, used + 100 * MiB))
        assert idle() >= 800 * MiB
        take(600 * MiB)  # fits none of the idle ones
        assert idle() == 0
        assert refusal(600 * MiB) == errno.ENOMEM
    """)


def test_a_forked_child_goes_on() -> None:
    ask("""
        kept = take(8 * MiB)
        free(kept)
        child = os.fork()
        if child == 0:
            assert take(8 * MiB) == kept
            free(kept)
            assert threads() == 2  # one of its own
            keep(0.05)
            wait_for(lambda: idle() == 0)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert take(8 * MiB) == kept
    """)


def test_the_process_ends_while_the_thread_waits() -> None:
    ask("free(take(8 * MiB))")


def test_the_share_is_of_the_machine_s_memory() -> None:
    ask("""
        from caffejax.kernels.blocks import keep_blocks
        from caffejax.machine import memory
        keep_blocks(share=6 * MiB / memory())
        free(take(8 * MiB))
        assert idle() == 0
        free(take(3 * MiB))
        assert idle() >= 3 * MiB
    """)
