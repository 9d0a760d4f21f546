"""Commands that prepare lists for convert_annoset: the sizes of images, and the map from class names to numbers."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from ..base.errors import DataError, Problem
from ..base.glog import log, start_logging
from ..base.paths import read_bytes
from . import flags
from .progress_bar import show_loop_progress


class get_image_size:  # noqa: N801  named like the command
    """Write a line `name height width` for each image of a list, as the SSD fork's tool does.

    `name` is the file name without folder and extension, or, with --name_id_file, the number of this name in that file.
    """

    HELP = "write the sizes of the images in a list"
    EXAMPLE = "caffejax get_image_size VOCdevkit/ test.txt test_name_size.txt"

    @staticmethod
    def add_flags(parser: argparse.ArgumentParser) -> None:
        """Add the command's flags."""
        parser.add_argument("root", help="the folder of the images", metavar="ROOTFOLDER/")
        parser.add_argument("list", help="the list of images and annotations, or labels", metavar="LISTFILE")
        parser.add_argument("output", help="the file to write", metavar="OUTFILE")
        flags.add(parser, "name_id_file", "a file with lines `name number`, one for each image", default="")
        flags.add_options(parser, "max_image_pixels")

    @staticmethod
    def run(options: argparse.Namespace) -> None:
        """Write the sizes of the images of a list to a text file."""
        start_logging()
        from ..base.atomic_write import replace_file
        from ..core.data.image_decoding import decode_file
        from ..core.data.image_list import find_files, read_pairs

        names, _ = read_pairs(Path(options.list))
        paths = find_files(Path(options.list), names, os.path.join(options.root, ""), ())
        log.info("A total of %d images.", len(paths))
        image_names = [Path(path).stem for path in paths]
        if options.name_id_file:
            name_ids = _read_name_ids(options.name_id_file)
            if missing := [name for name in image_names if name not in name_ids]:
                raise DataError(Problem(f"has no number for image '{missing[0]}'", options.name_id_file))
            image_names = [name_ids[name] for name in image_names]
        with replace_file(options.output) as file, show_loop_progress(len(paths), "images") as advance:
            for name, path in zip(image_names, paths, strict=True):
                content = read_bytes(path, DataError)
                _, height, width = decode_file(path, content, max_pixels=options.max_image_pixels).shape
                file.write(f"{name} {height} {width}\n".encode("utf-8", "surrogateescape"))
                advance()
        log.info("Processed %d files.", len(paths))


class create_label_map:  # noqa: N801
    """Write a label map from lines `name`, `name number` or `name number display_name`, as the SSD fork's tool does."""

    HELP = "write a label map from a list of class names"
    EXAMPLE = "caffejax create_label_map --include_background names.txt labelmap.prototxt"

    @staticmethod
    def add_flags(parser: argparse.ArgumentParser) -> None:
        """Add the command's flags."""
        parser.add_argument("list", help="the list of names", metavar="MAPFILE")
        parser.add_argument("output", help="the label map to write", metavar="OUTFILE")
        flags.add_switch(parser, "include_background", "begin with none_of_the_above as class 0")
        flags.add(parser, "delimiter", "the characters that separate the parts of a line", default=" ")

    @staticmethod
    def run(options: argparse.Namespace) -> None:
        """Write a label map with the names of a list of classes."""
        start_logging()
        from ..base.atomic_write import replace_file
        from ..base.paths import describe_content
        from ..core.schema import format_text
        from ..core.schema.caffe_pb2 import LabelMap

        items = [("none_of_the_above", 0, "background")] if options.include_background else []
        separator = f"[{re.escape(options.delimiter)}]" if options.delimiter else r"\Z"
        content = read_bytes(options.list, DataError)
        if (kind := describe_content(content) or "a binary file") != "a text":
            kind = kind if content else "empty"
            raise DataError(Problem(f"must have the name of one class on each line, but is {kind}", options.list))
        lines = content.decode("utf-8", "replace").splitlines()
        rows = [re.split(separator, line) for line in lines]
        for line_number, row in enumerate(rows, 1):
            is_invalid = len(row) != len(rows[0]) or len(row) > 3 or not row[0]
            if is_invalid or not (len(row) == 1 or re.fullmatch(r"[+-]?\d{1,9}", row[1])):
                raise DataError(
                    Problem(
                        f"'{lines[line_number - 1]}' is not {_describe_line_format(len(rows[0]))}",
                        options.list,
                        line_number,
                    )
                )
            items.append((row[0], int(row[1]) if len(row) > 1 else len(items), row[-1] if len(row) == 3 else row[0]))
        label_map = LabelMap()
        for name, label, display_name in items:
            label_map.item.add(name=name, label=label, display_name=display_name)
        with replace_file(options.output) as file:
            file.write(format_text(label_map).encode())
        log.info("Wrote %d classes to %s", len(items), options.output)


def _describe_line_format(num_parts: int) -> str:
    return {1: "a name", 2: "a name and a number"}.get(num_parts, "a name, a number and a name to display")


def _read_name_ids(path: str) -> dict[str, str]:
    words = read_bytes(path, DataError).decode("utf-8", "surrogateescape").split()
    names, numbers = words[::2], words[1::2]
    if len(names) != len(numbers) or not all(re.fullmatch(r"-?\d+", number) for number in numbers):
        raise DataError(Problem("must have a name and a number on each line", path))
    if len(set(names)) < len(names):
        name = next(name for i, name in enumerate(names) if name in names[:i])
        raise DataError(Problem(f"contains the name '{name}' twice", path))
    return dict(zip(names, numbers, strict=True))
