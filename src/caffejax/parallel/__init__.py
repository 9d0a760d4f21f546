"""Training on many devices, and in many processes: the mesh, what lies where on it, and what processes agree on."""

from .data_parallel import data_parallel
from .global_arrays import (
    check_shapes,
    first_rows,
    join_batches,
    moved,
    on_one,
    place,
    replicated,
    settled,
    whole,
    whole_on_first,
    whole_on_host,
)
from .mesh import DATA, MODEL, as_convolutions_want, cut_params, is_first, mesh_of, share_of
from .multihost import Requests, all_of, check_alike, meet, same_everywhere, start_processes

__all__ = [
    "DATA",
    "MODEL",
    "Requests",
    "all_of",
    "as_convolutions_want",
    "check_alike",
    "check_shapes",
    "cut_params",
    "data_parallel",
    "first_rows",
    "is_first",
    "join_batches",
    "meet",
    "mesh_of",
    "moved",
    "on_one",
    "place",
    "replicated",
    "same_everywhere",
    "settled",
    "share_of",
    "start_processes",
    "whole",
    "whole_on_first",
    "whole_on_host",
]
