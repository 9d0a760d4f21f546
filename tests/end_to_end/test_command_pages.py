"""Code blocks of the documentation run unchanged, and print what the page shows."""

import re
from pathlib import Path

import pytest
from documentation_pages import REPOSITORY, run_page

PAGES_TESTED_ELSEWHERE = {  # pages with tests of their own: in test_digits.py, test_docs.py and dnn/test_dnn.py
    *("index", "adding_a_layer", "comparing", "exporting_flax", "inference", "jax", "own_data", "python"),
    *("python_layers", "solvers", "weights"),
    "coming_from_opencv",
    *("accelerators", "scaling"),  # but for these, whose code needs a compiler for GPUs, and several devices
}
PAGES = sorted(
    page.name
    for page in (REPOSITORY / "docs").glob("*.md")
    if page.stem not in PAGES_TESTED_ELSEWHERE and re.search("^```(console|python)$", page.read_text(), re.MULTILINE)
)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_code_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page, capsys)


def test_all_pages_with_code_are_tested() -> None:
    files = "end_to_end/test_docs.py", "end_to_end/test_digits.py", "dnn/test_dnn.py"
    tests = "".join((Path(__file__).parents[1] / file).read_text() for file in files)
    assert {page for page in PAGES_TESTED_ELSEWHERE if f'"{page}.md"' not in tests} == {"accelerators", "scaling"}


def test_messages_in_tables_exist_in_the_source() -> None:
    """Messages in the tables of the page on errors, with ... for any text."""
    first_cells = re.findall(r"^\| `([^`]+)` \| ", (REPOSITORY / "docs" / "errors.md").read_text(), re.MULTILINE)
    messages = [message for message in first_cells if " " in message]
    assert len(messages) > 5
    source = "".join(path.read_text() for path in (REPOSITORY / "src").rglob("*.py"))
    source = re.sub(r'"\s*\n\s*f?"', "", source)  # strings in parts
    assert [part for message in messages for part in message.split("...") if part not in source] == []
