"""The command `caffejax`, and `python -m caffejax`, which takes `SCRIPT.py` for `run SCRIPT.py`, too."""

import signal
import sys


def start() -> int:
    """Run the command line; until it has begun, Ctrl-C ends the process in silence."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .cli import main

    return main()


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].endswith(".py"):
        sys.argv.insert(1, "run")
    sys.exit(start())
