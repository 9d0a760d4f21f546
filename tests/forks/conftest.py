"""Fixtures of data layers, for those of forks; the folder of core's suite, whose functions make the cases of forks."""

import sys
from pathlib import Path

from data_fixtures import (  # noqa: F401
    data_layer_text,
    golden,
    hdf5_layer_text,
    make_raw_datum,
    open_source,
    raw_db,
)

sys.path.append(str(Path(__file__).parents[1] / "core" / "jax_transforms"))
