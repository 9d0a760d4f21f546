"""The memory check before training: errors, suggested remedies that fit, and nets that are accepted."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from caffejax import Net, Solver
from caffejax.base.errors import SolverError
from caffejax.base.host_memory import get_free_memory
from caffejax.base.human_readable import parse_bytes
from caffejax.core.solver import training_memory
from caffejax.tools.summary.memory_report import report_memory

BATCH = 64
DIGITS = Path(__file__).parents[3] / "configs" / "digits" / "digits_train_lmdb"
NET = """
layer { name: "data" type: "Data" top: "data" top: "label"
  data_param { source: "SOURCE" batch_size: %d backend: LMDB } }
layer { name: "a" type: "Convolution" bottom: "data" top: "a"
  convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "b" type: "TanH" bottom: "a" top: "b" }
layer { name: "c" type: "Convolution" bottom: "b" top: "c"
  convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "d" type: "Sigmoid" bottom: "c" top: "d" }
layer { name: "p" type: "Pooling" bottom: "d" top: "p" pooling_param { pool: AVE global_pooling: true } }
layer { name: "ip" type: "InnerProduct" bottom: "p" top: "ip" inner_product_param { num_output: 10 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
""".replace("SOURCE", str(DIGITS))
HOST_LAYER = """layer { name: "f" type: "Filter" bottom: "ip" bottom: "label" top: "kept" }"""


def make_solver(batch: int = BATCH, net: str = NET, **options: Any) -> Solver:
    return Solver(f'net_param {{ {net % batch} }} base_lr: 0.01 lr_policy: "fixed" max_iter: 1', **options)


def estimate_memory(batch: int = BATCH, **options: Any) -> int:
    result = report_memory(Net(NET % batch, "TRAIN", **options)).training
    assert result is not None
    return result.peak_without_remat


@pytest.mark.parametrize("fraction", [0.65, 0.5, 0.3, 0.05, 0.0001])
def test_nets_that_do_not_fit_are_refused_with_remedies_that_fit(fraction: float) -> None:
    estimated_bytes = estimate_memory()
    limit = int(estimated_bytes * fraction)
    with pytest.raises(SolverError) as exc_info:
        make_solver(memory_limit=limit)
    message = str(exc_info.value)
    sizes = re.findall(r"([\d.]+) (bytes|[KMG]iB)", message)[:3]
    reported_bytes, reported_excess, reported_limit = (
        parse_bytes(number + unit.removeprefix("bytes")) for number, unit in sizes
    )
    assert reported_bytes == pytest.approx(estimated_bytes, rel=0.01)
    assert reported_limit == pytest.approx(limit, rel=0.01)
    assert reported_excess == pytest.approx(estimated_bytes - limit, rel=0.01)
    remedies = [part for part in message.split("; ")[1:] if "would fit (" in part]
    assert bool(remedies) == (fraction > 0.001)
    single_remedies = [part for part in remedies if not part.startswith("--remat=auto --precision")]
    for part in single_remedies:  # which is so: nothing is logged, nothing refused
        batch = int(re.search(r"a batch of (\d+)", part)[1]) if "batch" in part else BATCH  # type: ignore[index]
        options = {"precision": "bfloat16"} if "bfloat16" in part else {}
        if "remat" not in part:
            assert estimate_memory(batch, **options) <= limit
            assert batch == BATCH or estimate_memory(2 * batch) > limit, "the largest of its kind"
    if estimate_memory(precision="bfloat16") <= limit:
        assert any(part.startswith("--precision=bfloat16") for part in remedies)


def test_remedies_are_combined_if_no_single_remedy_is_enough() -> None:
    limit = int(estimate_memory(1) * 0.8)
    with pytest.raises(SolverError, match=r"; --remat=auto --precision=bfloat16 with a batch of \d+ would fit \("):
        make_solver(memory_limit=limit)


def test_an_estimate_slightly_above_the_limit_is_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("caffejax"), "propagate", True)
    make_solver(memory_limit=int(estimate_memory() * 0.9)).close()
    assert [r.getMessage() for r in caplog.records if "may run out of memory" in r.getMessage()]


@pytest.mark.parametrize("limit", [None, 10**12])
def test_a_limit_replaces_the_free_memory(monkeypatch: pytest.MonkeyPatch, limit: int | None) -> None:
    monkeypatch.setattr(training_memory, "get_free_memory", lambda: estimate_memory() // 4)
    if limit is None:
        with pytest.raises(SolverError, match=r"that are free; .*; if there is more memory, set --memory_limit=SIZE"):
            make_solver()
    else:
        make_solver(memory_limit=limit).close()


def test_fitting_nets_and_unknown_memory_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert get_free_memory() > 10 * estimate_memory()
    make_solver().close()
    make_solver(remat="auto", memory_limit=1).close()  # what to aim at
    make_solver(net=NET + HOST_LAYER, memory_limit=1).close()


def test_small_nets_are_not_traced_for_the_memory_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """To save time, small nets are accepted by the number of their params and activations alone."""
    monkeypatch.setattr(training_memory, "_estimate_memory", lambda *args: pytest.fail("traced"))
    make_solver().close()
