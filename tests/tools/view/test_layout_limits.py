"""Nets beyond the limits of the layout library."""

import subprocess
import sys

import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.tools.view.svg_drawing import lay_out


def test_a_path_too_long_for_the_library_is_an_error_with_a_remedy() -> None:
    pytest.importorskip("py_mini_racer")
    n = 6000
    edges = [(i, i + 1) for i in range(n - 1)]
    with pytest.raises(CaffejaxError, match="its longest path is too long; draw only one phase"):
        lay_out([(1, 1)] * n, edges, [(0, 0)] * len(edges), "LR")


INTERRUPTED_LAYOUT = """
import signal, os
from caffejax.tools.view import svg_drawing

get_engine = svg_drawing._get_engine

def get_engine_and_interrupt():
    engine = get_engine()
    os.kill(os.getpid(), signal.SIGINT)  # the main thread, which waits
    return engine

svg_drawing._get_engine = get_engine_and_interrupt
svg_drawing._get_thread().submit(svg_drawing._evaluate_script, "'1'").result()
"""


def test_an_interrupted_layout_lets_the_process_end() -> None:
    pytest.importorskip("py_mini_racer")
    process = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_LAYOUT], capture_output=True, text=True, timeout=60, check=False
    )
    assert process.stderr.endswith("KeyboardInterrupt\n")
