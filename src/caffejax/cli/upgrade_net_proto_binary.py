"""Convert an old binary net, such as a .caffemodel, to Caffe's current format; both files may be the same."""

from __future__ import annotations

import argparse

from . import upgrading

HELP = "upgrade an old .caffemodel"
EXAMPLE = "caffejax upgrade_net_proto_binary old.caffemodel new.caffemodel"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    upgrading.add_flags(parser, ".caffemodel")


def run(options: argparse.Namespace) -> None:
    """Upgrade the net."""
    from ..atomic import replacing
    from ..errors import located
    from ..glog import log, start_logging
    from ..schema import parse_binary, upgrade_net
    from ..schema.blob_proto import read_bytes
    from ..schema.caffe_pb2 import NetParameter

    start_logging()
    net = parse_binary(read_bytes(options.input), NetParameter, file=options.input)
    with located(file=options.input):
        warnings = upgrade_net(net)
    if warnings:
        log.warning("%s: %s", options.input, "; ".join(warnings))
    with replacing(options.output) as file:
        file.write(net.SerializeToString())
    log.info("Wrote upgraded NetParameter binary proto to %s", options.output)
