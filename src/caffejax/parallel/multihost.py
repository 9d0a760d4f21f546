"""Several processes that train together, through `jax.distributed`."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..errors import CaffejaxError
from .mesh import DATA

_HEARTBEAT = 30  # seconds without a sign of life, after which a process counts as lost
_AT_THE_END = 300  # seconds to wait for the others


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
        gpus: the numbers of those that this process uses; all that it finds, if there are none in it. Unless given, all
            as well, but under SLURM and Open MPI one: that of the process's number on its machine.
        timeout: seconds to wait for all to have come.

    SIGTERM ends the process, until somebody says otherwise: JAX would take it for itself.

    Raises:
        CaffejaxError: if the address cannot be one, or they do not come together.
    """
    if coordinator is not None:
        _check_address(coordinator, own=process_id == 0)
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process_id,
            gpus,
            # else an address that is given would not keep JAX from taking one GPU, as under a scheduler
            cluster_detection_method=None if coordinator is None else "deactivate",
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=_HEARTBEAT,
            shutdown_timeout_seconds=_AT_THE_END,
        )
    except (RuntimeError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        if coordinator is None and isinstance(error, ValueError):
            reason = f"neither srun, mpirun nor a TPU pod is found here ({reason}); name process 0's HOST:PORT"
        raise CaffejaxError(f"the processes could not be joined: {reason}") from error
    meet()  # CPUs connect with the first thing they do together, and wait no longer than half a minute for each other


def _check_address(address: str, *, own: bool) -> None:
    """Check an address, of which what JAX says is no exception; and if it is one's own, that it is free."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise CaffejaxError(f"'{address}' is not of the form host:port, with a port from 1 to {2**16 - 1}")
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        raise CaffejaxError(f"there is no host '{host}' to be found: {error}") from error
    if own:
        family, kind, _, _, place = found[0]
        try:
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
        except OSError as error:
            raise CaffejaxError(f"process 0 cannot take the address {address}: {error.strerror}") from error


def meet() -> None:
    """Wait for all processes, if there are several."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("caffejax")


def check_alike(what: Mapping[str, str]) -> None:
    """Check that all processes have the same of each thing, which are named in words; they must call it together.

    Raises:
        CaffejaxError: in all of them, naming those that differ.
    """
    if jax.process_count() == 1:
        return
    own = np.array([zlib.crc32(text.encode()) for text in what.values()], np.uint32)
    every = multihost_utils.process_allgather(own)
    if differing := [name for name, numbers in zip(what, every.T, strict=True) if len(set(numbers.tolist())) > 1]:
        raise CaffejaxError(f"the processes do not train the same: they differ in {', '.join(differing)}")


def all_of(here: bool) -> bool:
    """Return whether something is so in all processes; they must call it together."""
    if jax.process_count() == 1:
        return here
    return bool(multihost_utils.process_allgather(np.array(here)).all())


def same_everywhere(number: int) -> int:
    """Return process 0's number, below 2**31, in all processes; they must call it together."""
    if jax.process_count() == 1:
        return number
    return int(multihost_utils.broadcast_one_to_all(np.int32(number)))


class Requests:
    """What any process was asked for, as all of them learn it at the same iteration.

    Numbers from 0, for nothing, to 2, of which the largest counts. A training step is given each device's, and adds
    them up where it adds up gradients, so that they take no collective of their own. They are in float32, as those
    are, and arrive one iteration late, so that accelerators do not wait for them.

    Args:
        mesh: the devices of all processes.
    """

    def __init__(self, mesh: Mesh) -> None:
        rows = mesh.devices.reshape(mesh.shape[DATA], -1)
        alone = all(len({device.process_index for device in row}) == 1 for row in rows)
        axes = (DATA,) if alone else mesh.axis_names  # a row of several processes adds up its own, too
        # the first axis is of passes, as that of batches
        self._sharding = NamedSharding(mesh, PartitionSpec(None, *axes))
        self._shape = (1, *(mesh.shape[name] for name in axes))
        self._worth = (0, 1, mesh.size + 1)  # so that any one who asks for more counts for more than all the others
        self._under_way: jax.Array | None = None

    def asked(self, own: int) -> jax.Array:
        """Return what a step is given, of all devices; of this process's it is this request."""
        worth = np.full((1,) * len(self._shape), self._worth[own], np.float32)
        return jax.make_array_from_callback(self._shape, self._sharding, lambda _: worth)

    def heard(self, total: jax.Array) -> int:
        """Take what a step has added up; return what any process asked for in the step before."""
        before, self._under_way = self._under_way, total
        number = 0.0 if before is None else float(before)
        return sum(number >= worth for worth in self._worth[1:])
