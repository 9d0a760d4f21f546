"""Run a Python script in which `import caffe` means caffejax, as it stands; `python -m caffejax SCRIPT` does so, too.

Processes that the script starts find the same `caffe`. The script's own folder is first on Python's path, as ever.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import traceback
from pathlib import Path
from types import TracebackType

from ..errors import CaffejaxError

HELP = "run a Python script that says `import caffe`"
EXAMPLE = "caffejax run classify.py --images cat.jpg"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument(
        "-m", dest="module", help="the script is a module's name, as Python's -m has it", action="store_true"
    )
    parser.add_argument("script", help="the script", metavar="SCRIPT")
    parser.add_argument("arguments", help="its own arguments and flags", nargs=argparse.REMAINDER, metavar="...")


def run(options: argparse.Namespace) -> None:
    """Run the script; it ends the command with its own exit code.

    Raises:
        CaffejaxError: if there is no such script, or `caffe` was imported already.
        SystemExit: as the script raises it, and with 1 after an error in it, whose traceback is printed.
    """
    from .. import pycaffe, shim

    if not options.module and not os.path.isfile(options.script):
        raise CaffejaxError(f"there is no script {options.script}")
    pycaffe.install()
    sys.argv = [options.script, *options.arguments]
    own = os.getcwd() if options.module else str(Path(options.script).resolve().parent)
    sys.path[:1] = [own, str(shim.FOLDER)]  # the second is for processes: multiprocessing hands the path on,
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(shim.FOLDER), os.environ.get("PYTHONPATH")]))
    try:
        if options.module:
            runpy.run_module(options.script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(options.script, run_name="__main__")
    except Exception as error:
        traceback.print_exception(error.with_traceback(_of_script(error.__traceback__)))
        raise SystemExit(1) from None


def _of_script(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback from where Python's runpy ends and the script begins; all of it if it does not begin."""
    inner = frames
    while inner is not None and inner.tb_frame.f_globals.get("__name__") != "__main__":
        inner = inner.tb_next
    return inner or frames
