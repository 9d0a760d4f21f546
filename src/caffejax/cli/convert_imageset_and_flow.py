"""Make a database of image pairs from lines `image image flow occlusions`, as FlowNet 2's tool does.

The flow, a .flo or .pfm file, and the image of occlusions may be absent. CustomData reads the database.
"""

from __future__ import annotations

import argparse

from ..base.errors import DataError, Problem
from ..base.glog import log, start_logging
from . import flags
from .progress_bar import show_loop_progress

HELP = "make a database of image pairs with flows"
EXAMPLE = "caffejax convert_imageset_and_flow FlyingChairs.list FlyingChairs_lmdb 0 lmdb"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("list", help="the list of images, flows and occlusions", metavar="LISTFILE")
    parser.add_argument("database", help="the folder to create", metavar="DB_NAME")
    shuffle_help = "1 to store the pairs in a random order, the fork's; default: 0"
    parser.add_argument("shuffle", help=shuffle_help, choices=("0", "1"), nargs="?", default="0", metavar="SHUFFLE")
    backend_help = "the database format, lmdb (the default) or leveldb"
    choices = flags.DATABASES
    parser.add_argument("backend", help=backend_help, choices=choices, nargs="?", default="lmdb", metavar="DB_BACKEND")
    flags.add_options(parser, "max_image_pixels")


def run(options: argparse.Namespace) -> None:
    """Make the database."""
    start_logging()
    from pathlib import Path

    from ..core.data.database import WRITERS
    from ..core.data.image_list import find_files, read_names
    from ..forks.flow.custom_data import shuffle
    from ..forks.flow.flow_files import encode_flow_datum

    pairs = [line.split() for line in read_names(Path(options.list))]
    if wrong := next((pair for pair in pairs if not 2 <= len(pair) <= 4), None):
        raise DataError(Problem(f"'{' '.join(wrong)}' is not two images, a flow and occlusions", options.list))
    find_files(Path(options.list), [name for pair in pairs for name in pair], "", (), "file")
    if options.shuffle == "1":
        log.info("Shuffling data")
        pairs = [pairs[i] for i in shuffle(range(len(pairs)), seed=1)]
    log.info("A total of %d images.", len(pairs))
    with WRITERS[options.backend](options.database) as put, show_loop_progress(len(pairs), "pairs") as advance:
        for index, pair in enumerate(pairs):
            first, second, flow, occlusions = (*pair, "", "")[:4]
            record = encode_flow_datum(first, second, flow, occlusions, options.max_image_pixels)
            put(b"%08d_" % index + flow.encode("utf-8", "surrogateescape"), record)
            advance()
    log.info("Processed %d files.", len(pairs))
