"""Make a database of images with boxes from a text file with lines `image annotation`, as the SSD fork's tool does."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ..base.errors import DataError
from ..base.glog import log, start_logging
from . import flags
from .image_databases import ImageRecord, add_file_arguments, add_storage_flags, write_records

HELP = "make a database of images with boxes"
EXAMPLE = (
    "caffejax convert_annoset --anno_type=detection --label_map_file=labelmap.prototxt --encoded VOCdevkit/ "
    "trainval.txt trainval_lmdb"
)

_LABEL_FORMATS = ("xml", "json", "txt")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    add_file_arguments(parser, "the list of images and annotations, or labels")
    annotation_types = ("classification", "detection", "detection_with_segmentation", "lane_detection")
    flags.add(
        parser,
        "anno_type",
        "the list contains labels, or names files with boxes, with boxes and an image of labels, or with lanes",
        choices=annotation_types,
        default=annotation_types[0],
    )
    flags.add(
        parser, "label_type", "the format of the files with boxes", choices=_LABEL_FORMATS, default=_LABEL_FORMATS[0]
    )
    flags.add(parser, "label_map_file", "a LabelMap with the class numbers; optional for txt files", default="")
    flags.add_switch(parser, "check_label", "has no effect: names and labels are always checked for duplicates")
    flags.add(
        parser,
        "min_dim",
        "enlarge smaller images until the shorter side has this length in pixels",
        type=flags.parse_count,
        default=0,
    )
    flags.add(
        parser,
        "max_dim",
        "then shrink larger images until the longer side has this length in pixels",
        type=flags.parse_count,
        default=0,
    )
    add_storage_flags(parser)


def run(options: argparse.Namespace) -> None:
    """Make the database."""
    start_logging()
    import numpy as np

    if (options.min_dim or options.max_dim) and (options.resize_height or options.resize_width):
        raise DataError("--min_dim and --max_dim cannot be combined with --resize_height and --resize_width")
    problem_counts: Counter[str] = Counter()  # of files

    def warn(path: str, problems: Mapping[str, str]) -> None:
        log.warning("%s: %s", path, "; ".join(problems.values()))
        problem_counts.update(problems.keys())

    images = _read_list(options, warn)
    if options.shuffle:
        log.info("Shuffling data")
        images = [images[i] for i in np.random.default_rng(options.seed).permutation(len(images)).tolist()]
    log.info("A total of %d images.", len(images))
    count = write_records(options, _read_records(options, images), len(images))
    if problem_counts:
        text = ", ".join(f"{n} with {name}" for name, n in problem_counts.items())
        log.warning(
            "Of %d annotation files, %s. They are stored as they are: correct them, and convert again", count, text
        )


class _AnnotatedImage(NamedTuple):
    name: str
    path: str
    label: Any  # the arguments of `encode_annotated_datum`
    segmentation: str | None = None


def _read_list(
    options: argparse.Namespace, on_problems: Callable[[str, Mapping[str, str]], object]
) -> list[_AnnotatedImage]:
    from pathlib import Path

    from ..core.data.image_list import find_files, read_list, read_pairs
    from ..forks.detection.data.annotation_files import read_annotation, read_label_map, read_lanes

    list_path = Path(options.list)
    if options.anno_type == "classification":
        names, labels = read_list(list_path)
        return list(map(_AnnotatedImage, names, find_files(list_path, names, options.root, ()), labels))
    has_lanes = options.anno_type == "lane_detection"
    if not options.label_map_file and options.label_type == "xml" and not has_lanes:
        raise DataError("--label_map_file is required: XML files name the classes, but the net needs class numbers")
    class_ids = read_label_map(Path(options.label_map_file)) if options.label_map_file else None
    names, annotations, *segmentations = read_pairs(list_path, 3 if "segmentation" in options.anno_type else 2)
    paths = find_files(list_path, names, options.root, ())
    annotation_paths = find_files(list_path, annotations, options.root, (), "annotation")
    if options.label_type == "txt":
        class_ids = None  # the annotation files contain numbers, not names
    read = partial(read_annotation, class_ids=class_ids, on_problems=on_problems)
    readers = [partial(read_lanes, a) if has_lanes else partial(read, a, options.label_type) for a in annotation_paths]
    further = [find_files(list_path, column, options.root, (), "label image") for column in segmentations]
    return list(map(_AnnotatedImage, names, paths, readers, *further))


def _read_records(options: argparse.Namespace, images: list[_AnnotatedImage]) -> Iterator[ImageRecord]:
    """Yield the AnnotatedDatum of each image, in the order of `images`."""
    from ..core.data.write_imageset import guess_encoding
    from ..forks.detection.data.annotated_datum import StorageOptions, encode_annotated_datum

    size = {"height": options.resize_height, "width": options.resize_width}
    storage = StorageOptions(
        not options.gray, min_dim=options.min_dim, max_dim=options.max_dim, max_pixels=options.max_image_pixels, **size
    )
    for index, image in enumerate(images):
        encoding = options.encode_type or (guess_encoding(image.name) if options.encoded else "")
        record, shape = encode_annotated_datum(
            image.path, image.label, replace(storage, encoding=encoding), image.segmentation
        )
        yield ImageRecord(index, image.name, image.path, record, shape)
