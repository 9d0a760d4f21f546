"""Fixtures of data layers."""

from data_fixtures import (  # noqa: F401
    data_layer_text,
    golden,
    hdf5_layer_text,
    make_raw_datum,
    open_source,
    raw_db,
)
