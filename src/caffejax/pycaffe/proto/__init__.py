"""Caffe's messages, where Caffe has them: `from caffe.proto import caffe_pb2`."""

from ...schema import caffe_pb2

__all__ = ["caffe_pb2"]
