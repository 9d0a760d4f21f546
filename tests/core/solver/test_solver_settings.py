"""Solver settings that Caffe rejects or accepts, and the nets that a solver makes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.core.schema import read_solver
from caffejax.core.solver import Solver, rate_schedule, solver_param

GOLDEN = Path(__file__).parents[2] / "golden"
RECORDED = json.loads((GOLDEN / "solver" / "rejections.json").read_text())
NET = RECORDED["net"]

# Caffe accepts these; they can only be mistakes
REFUSED_BY_CAFFEJAX_ONLY = {"iter_size: 0"}


def format_case_id(case: dict[str, Any]) -> str:
    return case["solver"].replace('net: "n.prototxt" base_lr: 0.1 ', "")


@pytest.mark.parametrize("case", RECORDED["cases"], ids=format_case_id)
def test_refuses_the_settings_that_caffe_refuses(
    case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("n.prototxt").write_text(NET)
    if "no/such/dir" in case["solver"]:
        Path("no").write_text("a file where a folder would be made")
    is_refused = not case["stepped"] or any(text in case["solver"] for text in REFUSED_BY_CAFFEJAX_ONLY)
    if is_refused:
        with pytest.raises(CaffejaxError):
            Solver(case["solver"] + "\n")
        return
    solver = Solver(case["solver"] + "\n")
    rates = [float(rate_schedule(solver.param)(i)) for i in range(4)]
    np.testing.assert_allclose(rates, [float(r) for r in case["lr"]], rtol=3e-7)
    solver.step(4)
    solver.close()
    weight = np.asarray(solver.train_state.params["ip"]["weight"]).ravel()[[0, -1]]
    np.testing.assert_allclose(weight, [float(w) for w in case["w"]], rtol=1e-5, atol=1e-6)


def test_nets_and_states_of_a_solver_equal_the_recorded() -> None:
    """train_state and test_state select the layers; the default snapshot prefix is the solver file's name."""
    folder = GOLDEN / "nets"
    recorded = json.loads((folder / "solver_states.json").read_text())
    solver = Solver(folder / recorded["solver"])
    recorded_nets = recorded["solver_built"]
    for net, expected in zip(
        [solver.net, *(t.net for t in solver.tests.evaluators)],
        [recorded_nets["train"], *recorded_nets["test"]],
        strict=True,
    ):
        assert net.graph.phase == expected["phase"]
        assert [layer.name for layer in net.graph.layers] == [layer["name"] for layer in expected["layers"]]
        assert [list(p.spec.shape) for p in net.graph.params] == [p["shape"] for p in expected["net_params"]]
    assert Path(solver.snapshots.prefix).name == recorded_nets["snapshot_prefix"]


def test_every_wrong_setting_is_reported_at_once() -> None:
    param = read_solver('lr_policy: "setp" type: "Adm" iter_size: 0 average_loss: 0\n')
    with pytest.raises(CaffejaxError) as exc_info:
        solver_param.check_solver(param, "s.prototxt")
    text = str(exc_info.value)
    for expected in ("did you mean 'step'?", "did you mean 'Adam'?", "iter_size", "average_loss", "train net"):
        assert expected in text
    assert all(line.startswith("s.prototxt: ") for line in text.splitlines())


@pytest.mark.parametrize("field", ["net", "train_net", "test_net"])
def test_a_missing_net_is_named_with_the_solver_that_names_it(field: str, tmp_path: Path) -> None:
    file = tmp_path / "solver.prototxt"
    (tmp_path / "n.prototxt").write_text(NET)
    extra_settings = 'train_net: "n.prototxt" test_iter: 1 test_interval: 1' if field == "test_net" else ""
    file.write_text(f'{field}: "none.prototxt" base_lr: 1 lr_policy: "fixed" {extra_settings}')
    with pytest.raises(CaffejaxError) as exc_info:
        Solver(file)
    assert str(exc_info.value).startswith(f"{file}: its {field} is 'none.prototxt', but there is no such file")
