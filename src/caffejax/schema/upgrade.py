"""Brings old nets and solvers up to date."""

from __future__ import annotations

from caffejax.schema.caffe_pb2 import NetParameter, SolverParameter


def upgrade_net(net: NetParameter) -> list[str]:
    """Brings `net` up to date, in place. Returns warnings."""
    return []


def upgrade_solver(solver: SolverParameter) -> list[str]:
    """Brings `solver` up to date, in place. Returns warnings."""
    return []
