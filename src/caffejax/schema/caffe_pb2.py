"""The message classes of caffe.proto. scripts/compile_schema.py makes the descriptors and the types."""

from caffejax.schema._pool import load

globals().update(load("caffe.binpb", __name__))
