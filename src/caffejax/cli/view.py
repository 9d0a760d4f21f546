"""Show a net in a browser as one HTML page with graph, shapes, parameters and multiply-adds; the page works offline."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ..base.human_readable import format_count
from . import flags, net_flags

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer
    from pathlib import Path

    from ..tools.view import NetView

HELP = "show a net in a browser"
_PICTURE_EXTENSIONS = (".svg", ".png", ".pdf", ".jpg", ".jpeg", ".dot")
EXAMPLE = "caffejax view configs/googlenet/train_val.prototxt --out googlenet.html"


def parse_port(text: str) -> int:
    """Parse a port number from 0 to 65535."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port number from 0 to 65535")
    return int(text)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    net_flags.add_net_argument(parser)
    flags.add(parser, "out", "the page to write (default: the net's file name with .html, in the current folder)")
    flags.add_switch(parser, "serve", "serve the page to this machine's browser instead; it reloads after each edit")
    flags.add(parser, "port", "the port of --serve; 0 for any free port", type=parse_port, default=0, metavar="N")
    net_flags.add_state_flags(parser)


def run(options: argparse.Namespace) -> None:
    """Write the page, or serve it."""
    from pathlib import Path

    from ..base.errors import CaffejaxError
    from ..tools.view import serve, write_view

    path, stages, config = Path(options.model), net_flags.get_stages(options), flags.make_config(options)
    if options.serve:
        if options.out is not None:
            raise CaffejaxError(
                "--out writes the page to a file, but --serve shows it without a file; give one of them"
            )
        serve(path, options.port, options.level, stages, _print_address, config)
        return
    out = Path(options.out or f"{path.stem}.html")
    flags.check_output_path(str(out), options.model)
    if out.suffix.lower() in _PICTURE_EXTENSIONS:
        raise CaffejaxError(f"{out}: this command writes an HTML page; `caffejax draw` draws pictures")
    _print_report(write_view(path, out, options.level, stages, config), out)


def _print_address(server: ThreadingHTTPServer) -> None:
    host, port = server.server_address[:2]
    print(f"Showing the net at http://{host!s}:{port}/ until interrupted (Ctrl-C)", flush=True)


def _print_report(view: NetView, out: Path) -> None:
    """Print the path of the page, then raise an error if the net has problems.

    Raises:
        CaffejaxError: if the net has problems; the error lists all of them.
    """
    from ..base.errors import CaffejaxError
    from ..tools.view.net_view import collect_problems

    print(f"Wrote {out}")
    if problems := collect_problems(view):
        print(f"The page shows {format_count(len(problems), 'problem')}", file=sys.stderr)
        raise CaffejaxError(f"{'/'.join(phases)}{': ' if phases else ''}{problem}" for problem, phases in problems)
