"""The documentation says what the code does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


def test_the_page_of_layers_is_up_to_date() -> None:
    script = REPOSITORY / "scripts" / "make_layer_page.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_guide_to_adding_a_layer_works(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs" / "adding_a_layer.md").read_text(), re.DOTALL)
    assert len(blocks[0].splitlines()) < 40
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(block, namespace)
    assert "(4, 5)" in capsys.readouterr().out


def test_the_page_on_python_works(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (REPOSITORY / "docs" / "python.md").read_text()
    assert len(page.splitlines()) < 100
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, namespace)
    assert capsys.readouterr().out.splitlines() == ["[1. 1.]", "(2, 4) (4, 3)", "(5, 4)", "True", "51"]
