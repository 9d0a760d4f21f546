"""Compute the mean of the images in a database, and each channel's mean, as Caffe's tool does."""

from __future__ import annotations

import argparse

from ..base.errors import DataError, Problem
from ..base.glog import log, start_logging
from . import flags
from .progress_bar import show_loop_progress

HELP = "compute the mean of a database's images"
EXAMPLE = "caffejax compute_image_mean train_lmdb mean.binaryproto"

_LOG_EVERY = 10000
_RECORDS_PER_READ = 100


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

    from ..base.atomic_write import replace_file
    from ..core.data.database import READERS
    from ..core.data.image_decoding import read_datum
    from ..core.data.write_imageset import MeanImage

    database, mean_image = READERS[options.backend](options.database), MeanImage()
    num_records = len(database)
    log.info("Starting iteration")
    with show_loop_progress(num_records, "images") as advance:
        for start in range(0, num_records, _RECORDS_PER_READ):
            for key, value in database.read_range(start, min(_RECORDS_PER_READ, num_records - start)):
                try:
                    mean_image.add(read_datum(value, max_pixels=options.max_image_pixels)[0])
                except DataError as error:
                    name = key.decode("utf-8", "backslashreplace")
                    located_error = DataError(Problem(f"record '{name}' {error}", options.database))
                    if not options.skip_errors:
                        raise located_error from error
                    log.warning("%s; skipped", located_error)
                    continue
                advance()
                if mean_image.count % _LOG_EVERY == 0:
                    log.info("Processed %d files.", mean_image.count)
    if not mean_image.count:
        raise DataError(Problem("no image could be read", options.database))
    if mean_image.count % _LOG_EVERY:
        log.info("Processed %d files.", mean_image.count)
    if options.output:
        log.info("Write to %s", options.output)
        with replace_file(options.output) as file:
            file.write(mean_image.to_binaryproto())
    log.info("Number of channels: %d", len(mean_image.value))
    for channel, values in enumerate(mean_image.value):
        # Caffe's float sums, one image at a time, may differ in the sixth digit
        log.info(
            "mean_value channel [%d]: %g", channel, np.cumsum(values, dtype=np.float32)[-1] / np.float32(values.size)
        )
