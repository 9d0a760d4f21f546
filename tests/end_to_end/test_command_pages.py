"""Code blocks of the documentation run unchanged, and print what the page shows."""

import contextlib
import io
import os
import re
import shlex
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest import mock

import pytest
from documentation_pages import REPOSITORY, run_page

from caffejax import cli

PAGES_TESTED_ELSEWHERE = {  # pages with tests of their own: in test_digits.py, test_docs.py and dnn
    *("index", "adding_a_layer", "comparing", "exporting_flax", "inference", "jax", "own_data", "python"),
    *("python_layers", "solvers", "weights"),
    "coming_from_opencv",
    "opencv_models",
    "layers_caffe",
    "layers_forks",
}
PAGES_FOR_SEVERAL_DEVICES = {"accelerators", "scaling"}  # below
# of blocks that neither `run_page` nor a page's own test runs; of all others the tables above say who runs them
BLOCKS_NOT_RUN = {
    ("docs/benchmarks.md", "bash"): "benchmarks need torch, ONNX Runtime and OpenVINO, and half an hour",
    ("docs/exporting_flax.md", "python source"): "what an export writes, with which test_docs.py compares it",
    (
        "docs/scaling.md",
        "python train.py",
    ): "a program for two processes, which core/parallel/test_own_programs.py runs",
    ("docs/adding_a_layer.md", "toml"): "part of a package's pyproject.toml",
}
PAGES = sorted(
    page.name
    for page in (REPOSITORY / "docs").glob("*.md")
    if page.stem not in PAGES_TESTED_ELSEWHERE | PAGES_FOR_SEVERAL_DEVICES
    and re.search("^```(console|python)$", page.read_text(), re.MULTILINE)
)


@pytest.mark.parametrize("page", PAGES)
def test_code_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page, capsys)


@pytest.mark.parametrize("page", sorted(PAGES_FOR_SEVERAL_DEVICES))
def test_code_for_several_devices_runs(page: str, eight_devices: ProcessPoolExecutor, tmp_path: Path) -> None:
    (tmp_path / "configs").symlink_to(REPOSITORY / "configs")
    output = eight_devices.submit(run_on_simulated_devices, page, tmp_path).result()
    expected_output = r"True [\d.e-]+ \w+ \(Collective\(.*all-reduce" if page == "accelerators" else ""
    assert re.match(expected_output, output), output


def run_on_simulated_devices(page: str, folder: Path) -> str:
    """Run a page's Python code; return what it prints. Plans are compiled for devices that exist: a CPU's."""
    import jax

    from caffejax.tools.planning import planner

    code = re.findall(
        r"^```python\n(.*?)^```$", (REPOSITORY / "docs" / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL
    )
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()) as output,
        mock.patch.dict(os.environ),
        mock.patch.object(planner, "get_devices", lambda target: jax.devices()[: target.devices]),
    ):
        exec("".join(code), {"__name__": page})
    return output.getvalue()


def test_all_blocks_of_all_pages_are_run_or_listed() -> None:
    names = "end_to_end/test_docs.py", "end_to_end/test_digits.py", "dnn/test_dnn.py", "dnn/test_opencv_models.py"
    tests = "".join((Path(__file__).parents[1] / file).read_text() for file in names)
    assert {page for page in PAGES_TESTED_ELSEWHERE if f'"{page}.md"' not in tests} == set()
    run_blocks = {("README.md", "python"), ("docs/comparing.md", "bash")}  # by test_docs.py
    run_blocks |= {(f"docs/{page}.md", "console") for page in ("index", "coming_from_opencv", "opencv_models")}
    run_blocks |= {(f"docs/{page}.md", "python") for page in PAGES_TESTED_ELSEWHERE | PAGES_FOR_SEVERAL_DEVICES}
    run_blocks |= {(f"docs/{page}", language) for page in PAGES for language in ("python", "console")}
    blocks: set[tuple[str, str]] = set()
    for path in find_pages():
        fences = re.findall(r"^ *```.*$", path.read_text(), re.MULTILINE)  # indented ones are not run
        assert len(fences) % 2 == 0, path
        blocks |= {(str(path.relative_to(REPOSITORY)), fence.removeprefix("```")) for fence in fences[::2]}
    code = {(page, language) for page, language in blocks if not re.match("$|text$|(text|prototxt) title=", language)}
    assert code - run_blocks == set(BLOCKS_NOT_RUN)


def test_commands_on_pages_have_arguments_that_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of those that need other files or machines; docs/commands.md is made from the commands themselves."""
    monkeypatch.chdir(tmp_path)
    parser = cli.make_parser()
    count = 0
    for path in find_pages():
        text = path.read_text().replace("\\\n", "") if path.name != "commands.md" else ""
        for command in re.findall(r"^    [^#\n]*?\bcaffejax ([a-z].*)$", text, re.MULTILINE):
            arguments = shlex.split(re.split(r" \||  +#| 2>&1| > ", command)[0])
            if arguments[0] == "check":  # which wants the files to exist
                arguments = [str(tmp_path) if not a.startswith("-") and a != "check" else a for a in arguments]
            with contextlib.redirect_stderr(io.StringIO()) as stderr, contextlib.suppress(SystemExit):
                parser.parse_args(arguments)
            assert not stderr.getvalue(), f"{path}: {command}\n{stderr.getvalue()}"
            count += 1
    assert count > 60


def find_pages() -> list[Path]:
    folders = (REPOSITORY / name for name in ("docs", "examples", "configs"))
    return [*REPOSITORY.glob("*.md"), *(path for folder in folders for path in folder.rglob("*.md"))]


def test_messages_in_tables_exist_in_the_source() -> None:
    """Messages in the tables of the page on errors, with ... for any text."""
    first_cells = re.findall(r"^\| `([^`]+)` \| ", (REPOSITORY / "docs" / "errors.md").read_text(), re.MULTILINE)
    messages = [message for message in first_cells if " " in message]
    assert len(messages) > 5
    source = "".join(path.read_text() for path in (REPOSITORY / "src").rglob("*.py"))
    source = re.sub(r'"\s*\n\s*f?"', "", source)  # strings in parts
    assert [part for message in messages for part in message.split("...") if part not in source] == []
