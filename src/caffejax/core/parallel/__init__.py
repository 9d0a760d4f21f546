"""Training on several devices and processes: the device mesh, sharded arrays and communication of processes."""

from .coordination import (
    barrier,
    broadcast_from_first,
    check_equal,
    current_wait,
    end_all,
    exchange,
    is_true_in_all_processes,
    note,
)
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
from .multihost import Requests, initialize_distributed

__all__ = [
    "DATA",
    "MODEL",
    "Requests",
    "all_gather",
    "barrier",
    "broadcast_from_first",
    "check_equal",
    "check_shapes",
    "current_wait",
    "data_parallel",
    "end_all",
    "exchange",
    "first_replica",
    "gather_to_first",
    "gather_to_host",
    "initialize_distributed",
    "is_first",
    "is_true_in_all_processes",
    "join_batches",
    "local_shard",
    "make_mesh",
    "note",
    "param_shardings",
    "put_global",
    "replicated_sharding",
    "reshard",
    "to_first_device",
    "tpu_conv_layout",
    "wait_on_cpu",
]
