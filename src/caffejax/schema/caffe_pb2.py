"""The message classes of caffe.proto. scripts/compile_schema.py makes the descriptors and the types."""

from ._pool import load

globals().update(load("caffe.binpb", __name__))
