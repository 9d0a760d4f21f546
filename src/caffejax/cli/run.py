"""Run an unchanged Python script in which `import caffe` imports caffejax, like `python -m caffejax SCRIPT`.

`import caffe` also imports caffejax in processes that the script starts. In the script, `cv2.dnn` reads Caffe's models,
as in OpenCV 4. The script's folder is first on Python's path, as usual.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from ..base.errors import CaffejaxError, Problem
from ..cpu.process_settings import enable_compilation_cache

HELP = "run a Python script that uses caffe or cv2.dnn"
EXAMPLE = "caffejax run classify.py --images cat.jpg"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("-m", dest="module", help="run a module by its name, as Python's -m does", action="store_true")
    parser.add_argument("script", help="the script", metavar="SCRIPT")
    parser.add_argument("arguments", help="the script's arguments and flags", nargs=argparse.REMAINDER, metavar="...")


def run(options: argparse.Namespace) -> None:
    """Run the script. The command exits with the script's exit code.

    Raises:
        CaffejaxError: if the script does not exist, or a different `caffe` has already been imported.
        SystemExit: if the script raises it; with code 1 after an error in the script, whose traceback is printed.
    """
    from .. import dnn, pycaffe
    from ..pycaffe import shim

    if not options.module and not os.path.isfile(options.script):
        raise CaffejaxError(f"the script {options.script} does not exist")
    pycaffe.install()
    with suppress(ImportError):  # if OpenCV cannot be imported, the script may not need it
        dnn.install()
    enable_compilation_cache()
    sys.argv = [options.script, *options.arguments]
    folder = os.getcwd() if options.module else str(Path(options.script).resolve().parent)
    sys.path[:1] = [folder, str(shim.FOLDER)]  # the second is for child processes: multiprocessing passes sys.path on
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(shim.FOLDER), os.environ.get("PYTHONPATH")]))
    try:
        if options.module:
            runpy.run_module(options.script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(options.script, run_name="__main__")
    except Exception as error:
        if problem := _find_script_problem(error, options.script):
            raise CaffejaxError(problem) from None
        traceback.print_exception(error.with_traceback(_strip_runpy_frames(error.__traceback__)))
        raise SystemExit(1) from None


def _find_script_problem(error: Exception, script: str) -> Problem | None:
    """Return the problem of a script or module that Python cannot start, or None if the error is from its code."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if any(frame.f_globals.get("__name__") == "__main__" for frame in frames):
        return None
    if isinstance(error, SyntaxError):
        return Problem(f"is not a Python script: {error.msg}", error.filename or script, error.lineno)
    if isinstance(error, ImportError) and frames[-1].f_globals.get("__name__") == "runpy":
        return Problem(f"cannot be run: {error}", script)
    return None


def _strip_runpy_frames(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback that begins with the script's first frame; return it unchanged if it has no such frame."""
    script_frames = frames
    while script_frames and script_frames.tb_frame.f_globals.get("__name__") != "__main__":
        script_frames = script_frames.tb_next
    return script_frames or frames
