"""Communication between processes that train together, through `jax.distributed`."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ...base.errors import CaffejaxError
from .coordination import format_by_process, watch_processes
from .mesh import DATA

_HEARTBEAT_TIMEOUT = 30  # seconds without a heartbeat, after which a process counts as lost
_JAX_EXTRA_TIMEOUT = 5  # seconds that JAX adds to the time in which all processes must start
_SHUTDOWN_TIMEOUT = 300  # seconds to wait for the other processes at the end


def initialize_distributed(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    gpus: Sequence[int] | None = None,
    timeout: int = 60,
) -> None:
    """Connect the processes that train together. Call it in each process before JAX is first used.

    JAX's handler of SIGTERM is not installed, so SIGTERM ends the process if the program does not handle it. If one
    process does not catch an exception, all of them end within seconds, with exit code 1.

    Args:
        coordinator: the host and port of process 0, "host:port". By default `jax.distributed.initialize` detects
            coordinator, processes and process_id under SLURM, Open MPI and Kubernetes, and on a TPU pod.
        num_processes: the number of processes.
        process_id: the number of this process, from 0.
        gpus: the numbers of the GPUs that this process uses; an empty sequence for all GPUs. By default a process uses
            all GPUs, except under SLURM and Open MPI, where it uses only the GPU whose number is the process's number
            on its machine.
        timeout: the time to wait for all processes, in seconds.

    Raises:
        CaffejaxError: if the address is not valid, or the processes cannot be connected.
    """
    if coordinator is not None:
        _check_address(coordinator, must_be_free=process_id == 0)
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            gpus,
            # otherwise JAX would use one GPU under a scheduler, even with an explicit address
            cluster_detection_method=None if coordinator is None else "deactivate",
            initialization_timeout=max(1, timeout - _JAX_EXTRA_TIMEOUT),
            heartbeat_timeout_seconds=_HEARTBEAT_TIMEOUT,
            shutdown_timeout_seconds=_SHUTDOWN_TIMEOUT,
        )
    except (RuntimeError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        if coordinator is None and isinstance(error, ValueError):
            reason = f"no srun, mpirun or TPU pod was detected ({reason}); give the HOST:PORT of process 0"
        raise CaffejaxError(f"the processes cannot be connected: {reason}") from error
    watch_processes()
    _check_device_counts()
    # CPUs connect in their first collective operation, and wait at most half a minute for each other
    multihost_utils.sync_global_devices("caffejax")


def _check_device_counts() -> None:
    counts = Counter(device.process_index for device in jax.devices())
    if len(set(counts.values())) > 1:
        listed = format_by_process([str(counts[i]) for i in range(jax.process_count())])
        raise CaffejaxError(
            f"the processes have different numbers of devices: {listed}; give all the same --devices, --gpu or "
            "JAX_NUM_CPU_DEVICES"
        )


def _check_address(address: str, *, must_be_free: bool) -> None:
    """Check the coordinator's address, and that its port is free. JAX itself raises no exception in these cases."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise CaffejaxError(f"'{address}' is not of the form host:port, with a port from 1 to {2**16 - 1}")
    try:
        addresses = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        raise CaffejaxError(f"the host '{host}' cannot be found: {error}") from error
    if must_be_free:
        family, socket_type, _, _, socket_address = addresses[0]
        try:
            with socket.socket(family, socket_type) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(socket_address)
        except OSError as error:
            raise CaffejaxError(f"process 0 cannot listen at the address {address}: {error.strerror}") from error


class Requests:
    """Requests of single processes to save a snapshot or to stop, sent to all processes.

    A request is a number from 0 (no request) to 2. All processes receive the largest request of all processes, at the
    same iteration. The training step sums the encoded requests, as float32, together with the gradients, so that no
    additional collective operation is needed. A sum is decoded one iteration later, so that accelerators do not wait
    for the host.

    Args:
        mesh: the devices of all processes.
    """

    def __init__(self, mesh: Mesh) -> None:
        rows = mesh.devices.reshape(mesh.shape[DATA], -1)
        has_one_process_per_row = all(len({device.process_index for device in row}) == 1 for row in rows)
        axes = (DATA,) if has_one_process_per_row else mesh.axis_names  # the sum needs each process's request once
        # the first axis corresponds to the batches' axis of passes
        self._sharding = NamedSharding(mesh, PartitionSpec(None, *axes))
        self._shape = (1, *(mesh.shape[name] for name in axes))
        self._codes = (0, 1, mesh.size + 1)  # one device's largest code exceeds the sum of smaller ones of all devices
        self._last_total: jax.Array | None = None

    def encode(self, request: int) -> jax.Array:
        """Return the requests of all processes as a global array, an argument of the training step.

        Args:
            request: the request of this process, 0 to 2.
        """
        code = np.full((1,) * len(self._shape), self._codes[request], np.float32)
        return jax.make_array_from_callback(self._shape, self._sharding, lambda _: code)

    def decode(self, total: jax.Array) -> int:
        """Return the largest request of all processes, 0 to 2, in the step before the last step.

        Args:
            total: the sum of the encoded requests of the last step. It is stored until the next call.
        """
        last_total, self._last_total = self._last_total, total
        value = 0.0 if last_total is None else float(last_total)
        return sum(value >= code for code in self._codes[1:])
