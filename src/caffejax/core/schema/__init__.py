"""Caffe's protobuf messages: their schema, text and binary forms, and upgrades of old files."""

from . import caffe_pb2 as caffe_pb2
from .fork_fields import ignored_fields as ignored_fields
from .fork_fields import ignored_settings as ignored_settings
from .fork_fields import unknown_settings as unknown_settings
from .load import parse_binary as parse_binary
from .load import read_net as read_net
from .load import read_solver as read_solver
from .load import read_valid_part as read_valid_part
from .load import source_file as source_file
from .text import format_text as format_text
from .text import parse_text as parse_text
from .upgrade import upgrade_net as upgrade_net
