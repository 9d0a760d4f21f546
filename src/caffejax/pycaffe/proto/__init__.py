"""Caffe's messages under Caffe's name: `from caffe.proto import caffe_pb2` or `import caffe.proto.caffe_pb2`."""

import sys

from ...core.schema import caffe_pb2

sys.modules[f"{__name__}.caffe_pb2"] = caffe_pb2

__all__ = ["caffe_pb2"]
