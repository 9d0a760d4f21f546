"""Caffe's protobuf messages: their schema, text and binary forms, and upgrades of old files."""

from . import caffe_pb2
from .fork_fields import ignored_fields, ignored_settings, unknown_settings
from .load import parse_binary, read_net, read_solver, read_valid_part, source_file
from .text import format_text, parse_text
from .upgrade import upgrade_net, upgrade_solver

__all__ = [
    "caffe_pb2",
    "format_text",
    "ignored_fields",
    "ignored_settings",
    "parse_binary",
    "parse_text",
    "read_net",
    "read_solver",
    "read_valid_part",
    "source_file",
    "unknown_settings",
    "upgrade_net",
    "upgrade_solver",
]
