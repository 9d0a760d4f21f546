"""Caffe's Python interface: `import caffejax.pycaffe as caffe`."""

from ..schema.caffe_pb2 import TEST, TRAIN
from . import io, proto
from ._alias import install
from ._blob import Blob
from .net_spec import NetSpec, layers, params, to_proto

__all__ = ["TEST", "TRAIN", "Blob", "NetSpec", "install", "io", "layers", "params", "proto", "to_proto"]
