"""The documentation says what the code does."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]


def test_the_page_of_layers_is_up_to_date() -> None:
    script = REPOSITORY / "scripts" / "make_layer_page.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
