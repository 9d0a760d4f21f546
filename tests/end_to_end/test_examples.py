"""Each example runs unchanged in an empty folder."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
EXAMPLES = Path(__file__).parents[2] / "examples"
# what a script prints must match, and each number of it must be at least this
OUTPUTS = {
    "fine_tuning": (r"accuracy ([\d.]+)\nconv1 unchanged: True", 0.95),
    "siamese": (r"nearest neighbour is right: ([\d.]+)\none array for both copies: 6 arrays", 0.9),
    "lstm_text": (r"loss [\d.]+\nthe quick brown fox jumps over the lazy dog. pack my box", None),
    "gradient_check": (r"(?s)SoftSign is right.*WrongSign is wrong", None),
    "nearest_neighbours": (r"all five are the same digit: ([\d.]+)", 0.9),
    "saliency": (r"on the strokes ([\d.]+) times", 1.2),
    "early_stopping": (r"at \d+, loss ([\d.]+)\nagain with the best: loss \1\n", None),
    "learning_rate_finder": (r"falls fastest at ([\d.]+) and explodes at ", 0.005),
    "experiment_log": (r"(?s)20 {'train/loss': .*40 {'test_0/accuracy': ([\d.]+), ", 0.8),
    "export": (r"accuracy ([\d.]+), for", 0.97),
}


def run_example(name: str, folder: Path) -> str:
    result = subprocess.run([sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True, cwd=folder)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where LeNet has been trained, whose weights others take."""
    folder = tmp_path_factory.mktemp("examples")
    output = run_example("lenet_from_arrays", folder)
    result = re.search(r"accuracy ([\d.]+)", output)
    assert result is not None
    assert float(result[1]) > 0.97
    return folder


def test_every_example_is_run_and_listed() -> None:
    scripts = {path.stem for path in EXAMPLES.glob("*.py")}
    assert scripts == {*OUTPUTS, "lenet_from_arrays", "digits"}
    linked_names = re.findall(r"\[(\w+)\.py\]", (EXAMPLES / "README.md").read_text())
    assert {*linked_names} == scripts - {"digits"}


@pytest.mark.parametrize("name", OUTPUTS)
def test_examples_print_their_results(name: str, folder: Path) -> None:
    pattern, minimum = OUTPUTS[name]
    output = run_example(name, folder)
    result = re.search(pattern, output)
    assert result is not None, output
    assert minimum is None or float(result[1]) >= minimum


@pytest.mark.parametrize("name", ["fine_tuning", "saliency", "export"])
def test_an_example_alone_names_the_one_to_run_first(name: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert run.returncode == 1
    assert run.stderr == (
        "lenet.prototxt and lenet.caffemodel not found here: run lenet_from_arrays.py first, in this folder\n"
    )
