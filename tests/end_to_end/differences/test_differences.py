"""Each case of docs/differences.md still shows its difference, and the page lists all cases."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs" / "differences.md").read_text()


@pytest.mark.long
def test_the_page_is_up_to_date() -> None:
    """The script runs all cases again, so that a difference that vanished, or changed, is noticed."""
    script = REPOSITORY / "scripts" / "make_differences_page.py"
    result = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_case_shows_a_difference() -> None:
    sections = re.findall(r"^### (.+?)$(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
    assert len(sections) >= 19
    for title, text in sections:
        rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", text, re.MULTILINE)
        assert rows, title
        assert all(caffe != ours for _, caffe, ours in rows), title
        assert "error: none" not in text, title


def test_unmet_recorded_cases_are_listed() -> None:
    """Recorded cases that are not met as recorded."""
    assert "SmoothL1LossOHEM/default" in PAGE
    assert "BN/segnet_overwrites" in PAGE
    assert "loss_weights" in PAGE
