"""Draw a net: layers, blobs and their connections. Formats other than .svg and .dot need Graphviz."""

from __future__ import annotations

import argparse

from . import flags, image_flags

HELP = "draw a net"
EXAMPLE = "caffejax draw_net configs/digits/lenet_train_test.prototxt lenet.svg --phase=TRAIN"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("input_net_proto_file", help="the net prototxt", metavar="NET")
    parser.add_argument("output_image_file", help="the picture; the ending selects the format", metavar="FILE")
    flags.add(
        parser, "rankdir", help="direction in which the net is drawn", choices=("LR", "RL", "TB", "BT"), default="LR"
    )
    flags.add(parser, "phase", help="only the layers of this phase", choices=("TRAIN", "TEST", "ALL"), default="ALL")
    flags.add(parser, "display_lrm", help="show the multipliers of the learning rate", action="store_true")


def run(options: argparse.Namespace) -> None:
    """Draw the net."""
    from pathlib import Path

    from ..atomic import check_place
    from ..glog import start_logging
    from ..pycaffe.draw import draw_net_to_file
    from ..schema import caffe_pb2, read_net

    start_logging()
    check_place(options.output_image_file)
    net = read_net(Path(options.input_net_proto_file))
    phase = None if options.phase == "ALL" else caffe_pb2.Phase.Value(options.phase)
    with image_flags.refusals(options.input_net_proto_file):
        draw_net_to_file(net, options.output_image_file, options.rankdir, phase, options.display_lrm)
    print(f"Drew {options.output_image_file}")
