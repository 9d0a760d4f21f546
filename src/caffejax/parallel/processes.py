"""Several processes that train together, through `jax.distributed`."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..errors import CaffejaxError
from .placing import replicated, settled

_HEARTBEAT = 30  # seconds without a sign of life, after which a process counts as lost


def start_processes(
    coordinator: str | None = None,
    processes: int | None = None,
    process_id: int | None = None,
    gpus: Sequence[int] | None = None,
    timeout: int = 60,
) -> None:
    """Join the processes that train together; call it in each, before JAX is first used.

    Args:
        coordinator: host and port of process 0, "host:port"; unless given, all three are found as
            `jax.distributed.initialize` finds them, under SLURM, Open MPI, Kubernetes or on a TPU pod.
        processes: how many there are.
        process_id: which of them this is, from 0 on.
        gpus: the numbers of those that this process uses; all that it finds, unless given.
        timeout: seconds to wait for all to have come.

    Raises:
        CaffejaxError: if they do not come together.
    """
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process_id,
            gpus,
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=_HEARTBEAT,
            shutdown_timeout_seconds=_HEARTBEAT,
        )
    except (RuntimeError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise CaffejaxError(f"the processes could not be joined: {reason}") from error


def is_first() -> bool:
    """Return whether this process is the one that writes files and logs."""
    return jax.process_index() == 0


def same_everywhere(number: int) -> int:
    """Return process 0's number, below 2**31, in all processes; they must call it together."""
    if jax.process_count() == 1:
        return number
    return int(multihost_utils.broadcast_one_to_all(np.int32(number)))


class Requests:
    """What any process was asked for, as all of them learn it at the same iteration.

    Numbers, of which the largest counts; 0 is nothing. They travel while the next iteration is computed, so that
    nothing waits for them, and arrive one iteration late.

    Args:
        mesh: the devices of all processes.
    """

    def __init__(self, mesh: Mesh) -> None:
        axes = tuple(mesh.shape)
        self._sharding = NamedSharding(mesh, PartitionSpec(axes))
        self._largest = jax.jit(jnp.max, out_shardings=replicated(mesh))
        self._size = mesh.size
        self._under_way: jax.Array | None = None

    def agree(self, own: int) -> int:
        """Send this process's request; return what was sent before by any. All processes call it in each iteration."""
        array = jax.make_array_from_callback((self._size,), self._sharding, lambda _: np.full(1, own, np.int32))
        before, self._under_way = self._under_way, settled(self._largest(array))
        return 0 if before is None else int(before)
