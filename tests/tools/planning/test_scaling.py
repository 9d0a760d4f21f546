"""The time of collectives, and the scaling of steps, compared with sums by hand."""

from dataclasses import replace
from typing import Any

import pytest

from caffejax.tools.planning import Plan, parse_target
from caffejax.tools.planning.hardware import CHIPS
from caffejax.tools.planning.hlo import Collective, ProgramStats
from caffejax.tools.planning.planner import estimate_link_seconds, estimate_scaling

# easy numbers: a byte takes a second on links, and four on the network
CHIP = replace(CHIPS["cuda:h100"], link=1.0, network=0.25, joined=8)


def make_collectives(kind: str, size: int, group_size: int, group_stride: int = 1, count: int = 1) -> list[Collective]:
    return [Collective(kind, size, count, group_size, group_stride)]


@pytest.mark.parametrize(
    ("collectives", "num_rows", "model_axis_size", "links", "network"),
    [
        (make_collectives("all-reduce", 80, 8), 8, 1, 2 * 80 * 7 / 8, 0),
        (make_collectives("all-reduce", 80, 8), 4, 1, 2 * 80 * 3 / 4, 0),
        (make_collectives("all-reduce", 80, 8, count=3), 8, 1, 3 * 2 * 80 * 7 / 8, 0),
        (make_collectives("all-gather", 80, 8), 8, 1, 80 * 7 / 8, 0),
        (make_collectives("reduce-scatter", 10, 8), 8, 1, 80 * 7 / 8, 0),  # of which each has an eighth
        (make_collectives("collective-permute", 80, 2), 2, 1, 80, 0),
        (make_collectives("all-reduce", 80, 8), 1, 1, 0, 0),
        # 8 hosts of 8: each device adds up an eighth of a host's sum with those in its place
        (make_collectives("all-reduce", 80, 8), 64, 1, 2 * 80 * 7 / 8, 4 * 2 * 10 * 7 / 8),
        (make_collectives("all-reduce", 80, 4), 64, 1, 2 * 80 * 7 / 8, 4 * 2 * 10 * 7 / 8),
        # rows of 2: within a row nothing grows; over the rows it does
        (make_collectives("all-reduce", 80, 2), 32, 2, 2 * 80 / 2, 0),
        (make_collectives("all-reduce", 80, 4, group_stride=2), 4, 2, 2 * 80 * 3 / 4, 0),
        (
            make_collectives("all-reduce", 80, 4, group_stride=2),
            8,
            2,
            2 * 80 * 3 / 4,
            4 * 2 * 20 / 2,
        ),  # 4 of a host's 8
        (make_collectives("all-reduce", 80, 8), 4, 2, 2 * 80 * 7 / 8, 0),
        ([], 64, 1, 0, 0),
    ],
)
def test_seconds_of_collectives(
    collectives: Any, num_rows: int, model_axis_size: int, links: float, network: float
) -> None:
    assert estimate_link_seconds(collectives, CHIP, num_rows, model_axis_size) == pytest.approx((links, network))


def test_collectives_overlap_the_backward_pass_or_follow_it() -> None:
    short_step, long_step = (
        estimate_scaling(300.0, make_collectives("all-reduce", size, 8), CHIP, 8) for size in (80, 800)
    )
    assert (short_step.best_seconds, short_step.worst_seconds) == (300, 440)
    assert short_step.efficiency == pytest.approx((300 / 440, 1))
    assert (long_step.best_seconds, long_step.worst_seconds) == (1500, 1700)  # 200 of the backward pass are beside it
    assert long_step.efficiency == pytest.approx((300 / 1700, 300 / 1500))


def make_plan(**changes: Any) -> Plan:
    program = ProgramStats(3352320, None, 0, 0, 0, tuple(make_collectives("all-reduce", 450_000, 4)), 0, 0, 0, 0)
    return replace(Plan(parse_target("cuda:h100:4"), "bfloat16", "TRAIN", 32, program, 2**30, 1, 1.0), **changes)


def test_a_plan_estimates_scaling() -> None:
    small_scale, large_scale = make_plan().scaling([8, 64])
    assert (small_scale.devices, large_scale.devices) == (8, 64)
    assert (small_scale.compute_seconds, small_scale.collective_seconds) == pytest.approx((1e-6, 2e-6 * 7 / 8))
    assert large_scale.collective_seconds == pytest.approx(2e-6 * 7 / 8 + 2 * 450_000 / 8 * 7 / 8 / 50e9)


@pytest.mark.parametrize(
    "changes", [{"phase": "TEST"}, {"target": parse_target("cuda:h100:1")}, {"program": None}, {"needed_bytes": 2**50}]
)
def test_plans_that_cannot_scale_have_no_estimates(changes: dict[str, Any]) -> None:
    assert make_plan(**changes).scaling([8, 64]) == []


def test_device_counts_that_are_no_multiple_of_a_row_are_omitted() -> None:
    assert [s.devices for s in make_plan(model=4, target=parse_target("cuda:h100:8")).scaling([6, 8, 64])] == [8, 64]
