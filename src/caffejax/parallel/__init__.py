"""Training on several devices and processes: the device mesh, sharded arrays and communication of processes."""

from .data_parallel import data_parallel
from .global_arrays import (
    all_gather,
    check_shapes,
    first_replica,
    gather_to_first,
    gather_to_host,
    join_batches,
    put_global,
    replicated_sharding,
    reshard,
    to_first_device,
    wait_on_cpu,
)
from .mesh import DATA, MODEL, is_first, local_shard, make_mesh, param_shardings, tpu_conv_layout
from .multihost import Requests, all_processes, assert_equal, barrier, broadcast_from_first, start_processes

__all__ = [
    "DATA",
    "MODEL",
    "Requests",
    "all_gather",
    "all_processes",
    "assert_equal",
    "barrier",
    "broadcast_from_first",
    "check_shapes",
    "data_parallel",
    "first_replica",
    "gather_to_first",
    "gather_to_host",
    "is_first",
    "join_batches",
    "local_shard",
    "make_mesh",
    "param_shardings",
    "put_global",
    "replicated_sharding",
    "reshard",
    "start_processes",
    "to_first_device",
    "tpu_conv_layout",
    "wait_on_cpu",
]
