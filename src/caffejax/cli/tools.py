"""Write Caffe's programs into the folder of a Caffe checkout, so that its shell scripts run unchanged on caffejax.

The programs are build/tools/caffe, convert_imageset, ... and build/examples/mnist/convert_mnist_data, ..., each also
with the extension .bin. They are shell scripts that run caffejax with the Python that runs this command.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import sysconfig
from pathlib import Path

from ..base.errors import CaffejaxError

HELP = "write build/tools/* into a Caffe checkout"
EXAMPLE = "caffejax tools ~/caffe"

# programs of build/tools, by the command of caffejax that each runs
TOOLS = {
    "caffe": "",
    **{name: name for name in ("convert_imageset", "compute_image_mean", "extract_features", "device_query")},
    **{f"upgrade_{name}": f"upgrade_{name}" for name in ("net_proto_text", "net_proto_binary", "solver_proto_text")},
    **{name: name for name in ("convert_annoset", "get_image_size", "create_label_map")},
    "convert_imageset_and_flow": "convert_imageset_and_flow",
}
EXAMPLES = {  # programs of build/examples, in the same way
    "mnist/convert_mnist_data": "convert_mnist_data",
    "cifar10/convert_cifar_data": "convert_cifar_data",
    "siamese/convert_mnist_siamese_data": "convert_mnist_siamese_data",
    "cpp_classification/classification": "classification",
    "ssd/ssd_detect": "ssd_detect",
}
SUCCESSORS = {  # programs that only print their successors, as in Caffe
    "train_net": "caffe train --solver=... [--snapshot=...]",
    "finetune_net": "caffe train --solver=... [--weights=...]",
    "test_net": "caffe test --model=... --weights=... [--iterations=...]",
    "net_speed_benchmark": "caffe time --model=... [--iterations=...]",
}
_MARKER = "# written by `caffejax tools`"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    from . import flags

    parser.add_argument("folder", help="a checkout of Caffe, or any other folder; created if missing", metavar="FOLDER")
    flags.add_switch(parser, "replace", "replace programs that this command did not write, such as Caffe's own")


def run(options: argparse.Namespace) -> None:
    """Write the programs.

    Raises:
        CaffejaxError: if the folder is a file or cannot be created, or if it contains programs that this command did
            not write and `--replace` is absent.
    """
    from ..base.atomic_write import replace_file

    folder = Path(options.folder)
    if os.path.lexists(folder) and not folder.is_dir():
        raise CaffejaxError(f"{folder} is not a folder; pass the folder of a Caffe checkout, or a new one")
    programs = _make_programs(folder / "build")
    foreign_paths = [path for path in programs if os.path.lexists(path) and not _has_marker(path)]
    if foreign_paths and not options.replace:
        raise CaffejaxError(
            f"{', '.join(map(str, foreign_paths))}: not written by `caffejax tools`, so nothing was changed; --replace "
            f"replaces {'it' if len(foreign_paths) == 1 else 'them'}"
        )
    for path, text in programs.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_symlink():
                path.unlink()  # the file that it points to does not change
        except OSError as error:
            raise CaffejaxError(f"{path}: cannot be written: {error.strerror}") from error
        with replace_file(path) as file:
            file.write(text.encode())
            os.fchmod(file.fileno(), 0o755)
    for path in foreign_paths:
        print(f"Replaced {path}")
    print(f"Wrote {len(programs)} programs to {folder / 'build'}; they run {sys.executable} -m caffejax")


def _make_programs(build: Path) -> dict[Path, str]:
    commands = {f"tools/{name}": command for name, command in (TOOLS | {c: c for c in EXAMPLES.values()}).items()}
    commands |= {f"examples/{name}": command for name, command in EXAMPLES.items()}
    scripts = {name: _make_script(command) for name, command in commands.items()}
    for name, successor in SUCCESSORS.items():
        scripts[f"tools/{name}"] = f"#!/bin/sh\n{_MARKER}\necho {shlex.quote(f'{name}: use {successor}')} >&2\nexit 1\n"
    return {build / (name + extension): text for name, text in scripts.items() for extension in ("", ".bin")}


def _make_script(command: str) -> str:
    import_root = Path(__file__).parents[2].resolve()
    lines = ["#!/bin/sh", _MARKER]
    if str(import_root) not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):  # may not be on sys.path
        lines.append(f"export PYTHONPATH=${{PYTHONPATH:+$PYTHONPATH:}}{shlex.quote(str(import_root))}")
    # -P: modules of the working directory do not hide Python's own
    lines.append(f'exec {shlex.quote(sys.executable)} -P -m caffejax {command}{" " * bool(command)}"$@"\n')
    return "\n".join(lines)


def _has_marker(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return _MARKER.encode() in file.read(100)
    except OSError:
        return False
