"""Cuts round host layers."""

from __future__ import annotations

from schedule_nets import CHAIN, FILTERED, names

from caffejax import Net
from caffejax.execution import schedule_of
from caffejax.execution.cut import cut_round_host


def test_a_schedule_is_cut_round_host_layers() -> None:
    net = Net(FILTERED)
    assert [(part.how, [layer.name for layer in part.layers]) for part in net.schedule.parts] == [
        ("traced", ["data", "wanted", "conv"]),
        ("host", ["filter"]),
        ("rows", ["relu", "ip"]),
        ("traced", ["sum"]),
    ]
    assert str(net.schedule).splitlines() == [
        "compiled: data .. conv",
        "on the host: filter",
        "compiled for rows padded to a power of two: relu .. ip",
        "compiled: sum",
    ]


def test_nothing_to_cut_is_not_cut() -> None:
    whole = schedule_of(Net(CHAIN).graph)
    assert names(cut_round_host(whole, trim=True)) == names(whole)
    assert len(cut_round_host(whole, trim=True).parts) == 1
