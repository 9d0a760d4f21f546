"""Pictures of tiles: the flags of the commands that draw them, and how they are written."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from . import flags, nets

if TYPE_CHECKING:
    import numpy as np


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add flags for the net, its weights, and the picture."""
    parser.add_argument("model", help="the net prototxt", metavar="NET")
    flags.add(parser, "weights", "its weights: .caffemodel[.h5], .npz, ...", required=True, metavar="FILE")
    flags.add(parser, "out", "the picture, .png", required=True, metavar="FILE")
    flags.add(parser, "phase", "the net's phase", choices=("TRAIN", "TEST"), default="TEST")
    nets.add_strict_flag(parser)
    nets.add_state_flags(parser)
    flags.add(parser, "maps", "draw this many tiles, the first; all unless given", type=flags.positive, metavar="N")
    flags.add_switch(parser, "each", "from black to white within each tile; else over all of them")
    flags.add(
        parser, "size", "pixels of the picture's longer side, about", type=flags.positive, default=800, metavar="N"
    )


def write(maps: np.ndarray, options: argparse.Namespace, what: str) -> None:
    """Write maps as the picture that the flags ask for, and say what it shows."""
    from pathlib import Path

    from ..atomic import replacing
    from ..debugging.visualize import encoded, enlarged, grid
    from ..errors import located

    drawn = maps[: options.maps] if options.maps else maps
    with located(file=options.out):
        picture = encoded(enlarged(grid(drawn, each=options.each), options.size), Path(options.out).suffix)
    with replacing(options.out) as file:
        file.write(picture)
    print(f"Wrote {options.out}: {what}, {len(drawn)} of {len(maps)} maps of {maps.shape[1]} x {maps.shape[2]}")
