"""The command `caffejax`, also `python -m caffejax`. `caffejax SCRIPT.py` is short for `caffejax run SCRIPT.py`."""

import os
import signal
import sys


def start() -> int:
    """Run the command line and return its exit status. Ctrl-C during the imports prints no traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .cli import main

    return main()


def start_tool() -> int:
    """Run the program of Caffe whose name this process has, such as convert_imageset; return its exit status.

    The distribution caffejax-shim installs these programs.
    """
    from . import cli

    name = os.path.basename(sys.argv[0])
    if name in cli.tools.SUCCESSORS:
        print(f"{name}: use {cli.tools.SUCCESSORS[name]}", file=sys.stderr)
        return 1
    sys.argv.insert(1, name)
    return start()


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].endswith(".py"):
        sys.argv.insert(1, "run")
    sys.exit(start())
