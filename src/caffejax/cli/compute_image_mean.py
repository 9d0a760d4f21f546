"""Compute the mean of the images in a database, and each channel's mean, as Caffe's tool does."""

from __future__ import annotations

import argparse

from ..errors import DataError, Problem
from ..glog import log, start_logging
from . import flags
from .progress_bar import counter

HELP = "compute the mean of a database's images"
EXAMPLE = "caffejax compute_image_mean train_lmdb mean.binaryproto"

_LOG_EVERY = 10000
_READ_SIZE = 100


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("database", help="the database", metavar="INPUT_DB")
    parser.add_argument("output", help="the .binaryproto file to write", metavar="OUTPUT_FILE", nargs="?")
    flags.add_backend_flag(parser)
    flags.add_options(parser, "max_image_pixels")
    flags.add_switch(parser, "skip_errors", "skip images that cannot be read, with a warning")


def run(options: argparse.Namespace) -> None:
    """Compute the mean."""
    start_logging()
    import numpy as np

    from ..atomic_write import replace_file
    from ..data.database import READERS
    from ..data.image_decoding import read_datum
    from ..data.write_imageset import MeanImage

    records, mean = READERS[options.backend](options.database), MeanImage()
    total = len(records)
    log.info("Starting iteration")
    with counter(total, "images") as advance:
        for start in range(0, total, _READ_SIZE):
            for key, value in records.read_range(start, min(_READ_SIZE, total - start)):
                try:
                    mean.add(read_datum(value, max_pixels=options.max_image_pixels)[0])
                except DataError as error:
                    name = key.decode("utf-8", "backslashreplace")
                    located = DataError(Problem(f"record '{name}' {error}", options.database))
                    if not options.skip_errors:
                        raise located from error
                    log.warning("%s; skipped", located)
                    continue
                advance()
                if mean.count % _LOG_EVERY == 0:
                    log.info("Processed %d files.", mean.count)
    if not mean.count:
        raise DataError(Problem("no image could be read", options.database))
    if mean.count % _LOG_EVERY:
        log.info("Processed %d files.", mean.count)
    if options.output:
        log.info("Write to %s", options.output)
        with replace_file(options.output) as file:
            file.write(mean.to_binaryproto())
    log.info("Number of channels: %d", len(mean.value))
    for channel, values in enumerate(mean.value):
        # Caffe's float sums, one image at a time, may differ in the sixth digit
        log.info(
            "mean_value channel [%d]: %g", channel, np.cumsum(values, dtype=np.float32)[-1] / np.float32(values.size)
        )
