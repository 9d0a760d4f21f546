"""Convert an old net, solver or .caffemodel to Caffe's current format; input and output may be the same file."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from ..base.glog import log, start_logging

HELP = "convert an old net, solver or .caffemodel to Caffe's current format"
EXAMPLE = "caffejax upgrade old.prototxt new.prototxt"


def add_flags(parser: argparse.ArgumentParser, file_kind: str = "net, solver or .caffemodel") -> None:
    """Add the arguments INPUT, a file of kind `file_kind`, and OUTPUT, the file to write."""
    parser.add_argument("input", help=f"the {file_kind} to read", metavar="INPUT")
    parser.add_argument("output", help="the file to write", metavar="OUTPUT")


def run(options: argparse.Namespace, kind: str = "") -> None:
    """Upgrade the file. `kind` is "net", "solver" or "weights"; by default the file's content decides."""
    from ..base.atomic_write import replace_file
    from ..base.errors import WeightsError
    from ..base.paths import read_bytes
    from ..core.schema import format_text, read_net, read_solver

    start_logging()
    data = b"" if kind in ("net", "solver") else read_bytes(options.input, WeightsError)
    kind = kind or _detect_kind(data)
    if kind == "weights":
        message = _upgrade_weights(data, options.input)
        content, encoding = message.SerializeToString(), "binary"
    else:
        path = Path(options.input)
        message = read_solver(path) if kind == "solver" else read_net(path, accepts_old_forms=True)
        content, encoding = format_text(message).encode(), "text"
    with replace_file(options.output) as file:
        file.write(content)
    log.info("Wrote upgraded %s %s proto to %s", message.DESCRIPTOR.name, encoding, options.output)


def _detect_kind(data: bytes) -> str:
    """Return the kind of a file with this content: "weights" if it is not text, otherwise "solver" or "net"."""
    from ..tools.model_check.model_files import detect_kind

    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "weights"
    return "weights" if "\0" in text else "solver" if detect_kind(text) == "solver" else "net"


def _upgrade_weights(data: bytes, path: str) -> Any:
    from ..base.errors import locate_errors
    from ..core.schema import parse_binary, upgrade_net
    from ..core.schema.caffe_pb2 import NetParameter

    net = parse_binary(data, NetParameter, file=path)
    with locate_errors(file=path):
        warnings = upgrade_net(net)
    if warnings:
        log.warning("%s: %s", path, "; ".join(warnings))
    return net


class upgrade_net_proto_text:  # noqa: N801  named like the command
    """Convert an old net prototxt to Caffe's current format; input and output may be the same file."""

    HELP = "upgrade an old net prototxt"
    EXAMPLE = "caffejax upgrade_net_proto_text old.prototxt new.prototxt"
    add_flags = staticmethod(partial(add_flags, file_kind="net prototxt"))
    run = staticmethod(partial(run, kind="net"))


class upgrade_net_proto_binary:  # noqa: N801
    """Convert an old binary net, such as a .caffemodel, to Caffe's current format; both files may be the same."""

    HELP = "upgrade an old .caffemodel"
    EXAMPLE = "caffejax upgrade_net_proto_binary old.caffemodel new.caffemodel"
    add_flags = staticmethod(partial(add_flags, file_kind=".caffemodel"))
    run = staticmethod(partial(run, kind="weights"))


class upgrade_solver_proto_text:  # noqa: N801
    """Convert an old solver prototxt and its nets to Caffe's current format; input and output may be the same file."""

    HELP = "upgrade an old solver prototxt"
    EXAMPLE = "caffejax upgrade_solver_proto_text old.prototxt new.prototxt"
    add_flags = staticmethod(partial(add_flags, file_kind="solver prototxt"))
    run = staticmethod(partial(run, kind="solver"))
