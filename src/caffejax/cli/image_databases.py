"""What the commands that make databases from lists of images share: flags, and the loop that writes the records."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import NamedTuple

from ..base.errors import DataError
from ..base.glog import log
from . import flags
from .progress_bar import show_loop_progress

_LOG_EVERY = 1000


def add_file_arguments(parser: argparse.ArgumentParser, list_help: str) -> None:
    """Add the arguments ROOTFOLDER/, LISTFILE and DB_NAME, and `--backend`."""
    parser.add_argument("root", help="prefix of each path; must end with a slash", metavar="ROOTFOLDER/")
    parser.add_argument("list", help=list_help, metavar="LISTFILE")
    parser.add_argument("database", help="the folder to create", metavar="DB_NAME")
    flags.add_backend_flag(parser)


def add_storage_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the order, size, channels and encoding of the stored images."""
    flags.add_switch(parser, "gray", "store one channel instead of three")
    flags.add_switch(parser, "shuffle", "store the images in a random order")
    flags.add(parser, "seed", "the seed of the random order", type=flags.parse_count, default=0, metavar="N")
    for side, other in (("width", "height"), ("height", "width")):
        help_text = f"resize to this {side} in pixels; needs --resize_{other}"
        flags.add(parser, f"resize_{side}", help_text, type=flags.parse_count, default=0)
    flags.add_switch(parser, "check_size", "stop if an image differs in size from the first image")
    flags.add_switch(parser, "encoded", "store compressed images; files are copied unchanged if possible")
    flags.add(parser, "encode_type", "compress to jpg, png, ... (default: the extension of each file)", default="")
    flags.add_options(parser, "max_image_pixels")


class ImageRecord(NamedTuple):
    """A serialized image, its position and name, which make its key, its path, and its shape (channels, H, W)."""

    position: int
    name: str
    path: str
    value: bytes
    shape: tuple[int, ...]


def write_records(options: argparse.Namespace, records: Iterable[ImageRecord], total: int) -> int:
    """Write images to the database that the options name, and return their number.

    Args:
        options: the command's, of which `database`, `backend` and `check_size` are read.
        records: the images.
        total: the number of images, for the display of progress.

    Raises:
        DataError: with `check_size`, if an image differs in shape from the first one.
    """
    from ..core.data.database import WRITERS

    count, first_shape = 0, None
    with WRITERS[options.backend](options.database) as put, show_loop_progress(total, "images") as advance:
        for count, record in enumerate(records, 1):
            first_shape = first_shape or record.shape
            if options.check_size and record.shape != first_shape:
                raise DataError(
                    f"image '{record.path}' has shape {record.shape} (channels, height, width), but the first has "
                    f"{first_shape}"
                )
            put(b"%08d_" % record.position + record.name.encode("utf-8", "surrogateescape"), record.value)
            advance()
            if count % _LOG_EVERY == 0:
                log.info("Processed %d files.", count)
    if count % _LOG_EVERY:
        log.info("Processed %d files.", count)
    return count
