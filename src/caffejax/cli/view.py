"""Show a net in a browser: one page of HTML with the graph, shapes, parameters and multiply-adds, without network."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ..human_readable import counted
from . import flags, net_flags

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer
    from pathlib import Path

    from ..view import SeenNet

HELP = "show a net in a browser"
_PICTURES = (".svg", ".png", ".pdf", ".jpg", ".jpeg", ".dot")
EXAMPLE = "caffejax view configs/googlenet/train_val.prototxt --out googlenet.html"


def port(text: str) -> int:
    """Parse a number of a port, from 0 on."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port: a number up to 65535")
    return int(text)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("model", help="the net prototxt", metavar="NET")
    flags.add(parser, "out", "the page to write; unless given, the net's name with .html, in the current folder")
    flags.add_switch(parser, "serve", "show it to this machine's browser instead, anew whenever the file is edited")
    flags.add(parser, "port", "where to listen with --serve; 0 for any free port", type=port, default=0, metavar="N")
    net_flags.add_state_flags(parser)


def run(options: argparse.Namespace) -> None:
    """Write the page, or serve it."""
    from pathlib import Path

    from ..errors import CaffejaxError
    from ..view import serve, write_page

    file, stages, reading = Path(options.model), net_flags.stages(options), flags.reading_of(options)
    if options.serve:
        if options.out is not None:
            raise CaffejaxError("--out writes a page and --serve shows one without; give one of them")
        serve(file, options.port, options.level, stages, _say_where, reading)
        return
    out = Path(options.out or f"{file.stem}.html")
    flags.check_out(str(out), options.model)
    if out.suffix.lower() in _PICTURES:
        raise CaffejaxError(f"{out}: what is written is a page, .html; `caffejax draw_net` draws pictures")
    _report(write_page(file, out, options.level, stages, reading), out)


def _say_where(server: ThreadingHTTPServer) -> None:
    host, port = server.server_address[:2]
    print(f"Showing the net at http://{host!s}:{port}/ until interrupted (Ctrl-C)", flush=True)


def _report(seen: SeenNet, out: Path) -> None:
    """Say where the page is; what is wrong with the net is an error."""
    from ..errors import CaffejaxError
    from ..view.net_view import all_problems

    print(f"Wrote {out}")
    if problems := all_problems(seen):
        print(f"The page shows {counted(len(problems), 'problem')}", file=sys.stderr)
        raise CaffejaxError(f"{'/'.join(phases)}{': ' if phases else ''}{problem}" for problem, phases in problems)
