"""A process that looks at one file after another: paths come in on its input, pickled reports go out.

Its arguments are modules that it imports first.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from typing import BinaryIO

LENGTH = 8  # bytes, before each reply: how long it is


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer each request, `(path, weights, reading)`, with a report, until there are no more."""
    from ..errors import Problem
    from .check import check_file
    from .report import Report, findings_of

    _send("ready", replies)
    while True:
        try:
            path, weights, reading = pickle.load(requests)
        except EOFError:
            return
        try:
            report = check_file(path, weights, reading)
        except Exception as error:  # users' modules may raise anything
            message = f"looking at it raised {type(error).__name__}: {error}"
            report = Report(path, "net", findings_of([Problem(message)], "crash"))
        _send(report, replies)


def _send(reply: object, replies: BinaryIO) -> None:
    content = pickle.dumps(reply)
    replies.write(len(content).to_bytes(LENGTH) + content)
    replies.flush()


if __name__ == "__main__":
    own = os.fdopen(os.dup(1), "wb")  # what users' modules print goes elsewhere
    os.dup2(2, 1)
    for module in sys.argv[1:]:
        importlib.import_module(module)
    serve(sys.stdin.buffer, own)
