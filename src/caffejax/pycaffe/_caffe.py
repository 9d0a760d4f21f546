"""Alias of `caffejax.pycaffe` under the name of Caffe's compiled module: `from caffe._caffe import layer_type_list`.

It also has Caffe's vector types. Here they are lists, except for the vector of a layer's blobs.
"""

from __future__ import annotations

import sys
from typing import Any

from ..core.layers.python.layer import BlobVec
from ..core.schema.caffe_pb2 import LayerParameter, SolverParameter

__all__ = ["BlobVec", "LayerParameter", "SolverParameter"]

RawBlobVec = LayerVec = NetVec = StringVec = IntVec = DtypeVec = BoolVec = list


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__version__":
        raise AttributeError(name)
    return getattr(sys.modules[__name__.rpartition(".")[0]], name)
