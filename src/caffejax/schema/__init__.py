"""Caffe's messages: the schema, its text and binary forms, and upgrades of old files."""

from caffejax.schema import caffe_pb2
from caffejax.schema.reading import parse_binary, read_net, read_solver, source_file
from caffejax.schema.text import format_text, parse_text
from caffejax.schema.upgrade import upgrade_net, upgrade_solver

__all__ = [
    "caffe_pb2",
    "format_text",
    "parse_binary",
    "parse_text",
    "read_net",
    "read_solver",
    "source_file",
    "upgrade_net",
    "upgrade_solver",
]
