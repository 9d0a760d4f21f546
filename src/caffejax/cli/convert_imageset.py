"""Make a database of images from a text file with lines `path label`, as Caffe's tool does."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence

from ..base.errors import DataError
from ..base.glog import log, start_logging
from . import flags
from .image_databases import ImageRecord, add_file_arguments, add_storage_flags, write_records

HELP = "make a database of image files"
EXAMPLE = "caffejax convert_imageset --resize_height=256 --resize_width=256 --shuffle images/ train.txt train_lmdb"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    add_file_arguments(parser, "the list of images and labels")
    add_storage_flags(parser)
    flags.add_switch(parser, "skip_errors", "skip images that cannot be read, with a warning")


def run(options: argparse.Namespace) -> None:
    """Make the database."""
    start_logging()
    from pathlib import Path

    import numpy as np

    from ..core.data.image_list import find_files, read_list

    names, labels = read_list(Path(options.list))
    if options.skip_errors:
        paths = [options.root + name for name in names]
    else:
        paths = find_files(Path(options.list), names, options.root, ())
    images = list(zip(names, labels, paths, strict=True))
    order = range(len(paths))
    if options.shuffle:
        log.info("Shuffling data")
        order = np.random.default_rng(options.seed).permutation(len(paths)).tolist()
    log.info("A total of %d images.", len(paths))
    if options.encode_type and not options.encoded:
        log.info("encode_type specified, assuming encoded=true.")
    write_records(options, _read_records(options, images, order), len(paths))


def _read_records(
    options: argparse.Namespace, images: Sequence[tuple[str, int, str]], order: Iterable[int]
) -> Iterator[ImageRecord]:
    """Yield the Datum of each image, a name, a label and a path, in the order of the indices `order`.

    Images that cannot be read are omitted, or are errors; see the option `skip_errors`.
    """
    from ..core.data.write_imageset import encode_image_datum, guess_encoding

    for position, i in enumerate(order):
        name, label, path = images[i]
        encoding = options.encode_type or (guess_encoding(name) if options.encoded else "")
        try:
            datum, shape = encode_image_datum(
                path,
                label,
                color=not options.gray,
                height=options.resize_height,
                width=options.resize_width,
                encoding=encoding,
                max_pixels=options.max_image_pixels,
            )
        except DataError as error:
            if not options.skip_errors:
                raise
            log.warning("%s; skipped", error)
            continue
        yield ImageRecord(position, name, path, datum, shape)
