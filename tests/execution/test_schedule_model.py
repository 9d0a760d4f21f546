"""Schedules and their parts."""

from __future__ import annotations

from schedule_nets import FILTERED

from caffejax import Net


def test_parts_know_what_they_read_make_and_own() -> None:
    net = Net(FILTERED)
    first, host, rows, last = net.schedule.parts
    assert (first.reads, host.reads, rows.reads, last.reads) == ((), ("conv", "wanted"), ("some",), ("ip",))
    assert (first.makes, rows.makes) == ({"data", "wanted", "conv"}, {"some", "ip"})
    assert (first.owners, host.owners, rows.owners) == ({"conv"}, frozenset(), {"ip"})
    assert net.schedule.needed_after(0) == {"conv", "wanted", "some", "ip"}
    assert net.schedule.needed_after(3) == frozenset()
