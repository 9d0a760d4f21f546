"""Training on many devices, and in many processes: the mesh, what lies where on it, and what processes agree on."""

from .mesh import DATA, MODEL, mesh_of, share_of
from .over_devices import over_devices
from .placing import join_batches, on_one, place, place_like, replicated, settled, whole
from .processes import Requests, is_first, same_everywhere, start_processes
from .sharding import cut_params

__all__ = [
    "DATA",
    "MODEL",
    "Requests",
    "cut_params",
    "is_first",
    "join_batches",
    "mesh_of",
    "on_one",
    "over_devices",
    "place",
    "place_like",
    "replicated",
    "same_everywhere",
    "settled",
    "share_of",
    "start_processes",
    "whole",
]
