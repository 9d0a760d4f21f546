"""The list of workflows of public projects is valid, and its runner edits copies, runs, checks and skips."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import real_projects

PROJECT_LIST = tomllib.loads(real_projects.LIST.read_text())
CHECKS = ("output", "files", "numbers")
FIELDS = {"project", "name", "needs", "data", "weights", "edits", "folder", "run", "exit_code", *CHECKS}


def test_the_list_is_valid() -> None:
    workflows = PROJECT_LIST["workflow"]
    assert len(workflows) >= 40
    assert len({workflow["project"] for workflow in workflows}) >= 15
    assert {workflow["project"] for workflow in workflows} == PROJECT_LIST["projects"].keys()
    assert all(re.fullmatch("[0-9a-f]{40}", commit) for commit in PROJECT_LIST["projects"].values())
    assert len({(workflow["project"], workflow["name"]) for workflow in workflows}) == len(workflows)
    for workflow in workflows:
        assert workflow.keys() <= FIELDS
        assert any(workflow.get(name) for name in CHECKS)
        assert not any("|| true" in command for command in workflow["run"])
        assert set(workflow.get("data", ())) <= real_projects._DATA_MAKERS.keys()
        assert set(workflow.get("needs", ())) <= PROJECT_LIST["projects"].keys()
        assert {edit["rule"] for edit in workflow.get("edits", ())} <= real_projects._EDIT_RULES.keys()
        for number in workflow.get("numbers", ()):
            assert re.compile(number["pattern"]).groups == 1


WORKFLOWS = """
[projects]
"a/good" = "0"
"a/absent" = "0"
[[workflow]]
project = "a/good"
name = "good"
edits = [
  { rule = "python3", files = ["*.py"] },
  { rule = "numpy2", files = ["*.py"] },
  { rule = "replace", files = ["*.py"], pattern = "number = \\\\d+", with = "number = 3" },
  { rule = "set", files = ["*.prototxt"], fields = { max_iter = "7", display = "1" } },
]
run = ["python script.py", "caffe --help", "cat solver.prototxt"]
output = '(?s)read (a|b) 3\\.0.*max_iter: 7 # many\\n.*display: 1\\n'
files = ["build/tools/caffe"]
numbers = [{ pattern = "read b (\\\\S+)", value = 3, tolerance = 0 }]
[[workflow]]
project = "a/good"
name = "wrong number"
run = ["echo 'loss = 2'"]
numbers = [{ pattern = "loss = (\\\\d+)", value = 1, tolerance = 0.5 }]
[[workflow]]
project = "a/good"
name = "expected exit code"
edits = [{ rule = "scipy1", files = ["*.py"] }]
run = ["python -c 'import scipy_misc'", "false"]
exit_code = 1
[[workflow]]
project = "a/good"
name = "no failure"
run = ["true"]
exit_code = 1
[[workflow]]
project = "a/good"
name = "slow"
run = ["sleep 60"]
[[workflow]]
project = "a/good"
name = "needs a package"
run = ["python -c 'import not_there'"]
[[workflow]]
project = "a/good"
name = "absent net"
run = ["caffe train -solver absent.prototxt"]
[[workflow]]
project = "a/absent"
name = "absent"
run = ["true"]
"""


def test_the_runner_edits_a_copy_and_reports_the_outcomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = tmp_path / "checkouts" / "a+good"
    checkout.mkdir(parents=True)
    script = "import numpy as np, caffe\nnumber = 5\nprint 'read b', np.float(number)\n"
    (checkout / "script.py").write_text(script)
    (checkout / "solver.prototxt").write_text("max_iter: 1000 # many\n")
    subprocess.run(["git", "init", "-q", checkout], check=True)
    (tmp_path / "list.toml").write_text(WORKFLOWS)
    monkeypatch.setattr(real_projects, "LIST", tmp_path / "list.toml")
    monkeypatch.setattr(sys, "argv", ["real_projects.py", str(checkout.parent), "--seconds", "20"])
    assert real_projects.main() == 1
    lines, num_workflows = capsys.readouterr().out.splitlines(), WORKFLOWS.count("[[workflow]]")
    outcomes = [re.split(r" s  ", line)[1] for line in lines[:num_workflows]]
    assert outcomes[0].startswith("ok")
    assert "at commit" in outcomes[0]
    assert "is 2, not 1 within 0.5" in outcomes[1]
    assert outcomes[2].startswith("ok")
    assert "exit code 0" in outcomes[3]
    assert "takes more than 20 s" in outcomes[4]
    assert outcomes[5].startswith("absent: the Python package not_there")
    assert outcomes[6].startswith("FAILS in caffejax: exit code 1; caffejax: absent.prototxt")
    assert outcomes[7] == "absent: there is no checkout"
    assert lines[num_workflows] == "2 of 6 workflows of 1 projects go through"
    assert lines[num_workflows + 1 :] == [
        "failed in caffejax: a/good: absent net",
        "failed in caffejax or the project: a/good: wrong number; a/good: no failure; a/good: slow",
    ]
    assert (checkout / "script.py").read_text() == script
    assert not (checkout / "build").exists()


def test_failures_are_told_apart_by_the_last_frame() -> None:
    package = Path(real_projects.caffejax.__file__).parent
    frames = 'Traceback:\n  File "demo.py", line 3, in <module>\n'
    assert real_projects.find_place(f"{frames}NameError: x") == "the project"
    assert real_projects.find_place(f'{frames}  File "{package}/net.py", line 3, in f\nError') == "caffejax"
    assert real_projects.find_place("Killed") == "caffejax or the project"
