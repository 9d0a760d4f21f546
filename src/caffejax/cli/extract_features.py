"""Store blobs of a trained net, batch by batch, in databases of Datums with float_data, or in .npz files.

The arguments and their order are the same as in Caffe's tool. The net runs in phase TEST on the data of its data layer.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count, islice
from typing import Any

from ..base.config import read_device_variable
from ..base.errors import CaffejaxError, locate_errors
from ..base.glog import log, start_logging
from . import device_flags, flags, net_flags
from .progress_bar import show_loop_progress

HELP = "store blobs of a net as databases or .npz files"
EXAMPLE = "caffejax extract_features net.caffemodel net.prototxt fc7,prob fc7_lmdb,prob_lmdb 10 lmdb GPU 0"

_LOG_EVERY = 1000


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("weights", help="the trained net, a .caffemodel[.h5]", metavar="pretrained_net_param")
    parser.add_argument("model", help="the net prototxt, with a data layer", metavar="feature_prototxt")
    parser.add_argument("blobs", help="the blobs to store", metavar="blob1[,blob2,...]")
    parser.add_argument("databases", help="the databases or files to write, one for each blob", metavar="db1[,db2,...]")
    parser.add_argument(
        "batches", help="the number of batches to run", type=flags.parse_count, metavar="num_mini_batches"
    )
    parser.add_argument("db_type", help="the format of the databases or files", choices=(*flags.DATABASES, "npz"))
    parser.add_argument(
        "kind", help="the device to run on", choices=("CPU", "GPU"), nargs="?", default="CPU", metavar="CPU/GPU"
    )
    parser.add_argument("number", help="the number of the GPU", nargs="?", default="0", metavar="DEVICE_ID=0")
    net_flags.add_strict_flag(parser)
    net_flags.add_import_and_limit_flags(parser)


def run(options: argparse.Namespace) -> None:
    """Run the net, and write the blobs of each batch to a database or an .npz file."""
    start_logging()
    from pathlib import Path

    import jax
    import numpy as np

    from ..base.paths import check_exist
    from ..core.data.loader import Loader
    from ..core.program.net import Net
    from ..core.solver.intermediates import extract_features

    blob_names, output_paths = flags.split_commas(options.blobs), flags.split_commas(options.databases)
    if len(blob_names) != (n := len(output_paths)):
        raise CaffejaxError(
            f"{len(blob_names)} blobs need {len(blob_names)} databases, but the number of databases is {n}"
        )
    if duplicates := [path for i, path in enumerate(output_paths) if path in output_paths[:i]]:
        raise CaffejaxError(f"the database '{duplicates[0]}' is named twice; give each blob a different one")
    device_index = "0" if options.kind == "CPU" else options.number.removeprefix("DEVICE_ID=")
    kind, _, number = (read_device_variable() or f"{options.kind.lower()}:{device_index}").partition(":")
    device = device_flags.get_device(kind, number or "0")
    check_exist([options.model, *flags.split_commas(options.weights)])
    net = Net(Path(options.model), "TEST", config=flags.make_config(options))
    variables = jax.device_put(net_flags.load_variables(net, options.weights, options.strict_weights), device)
    loader = Loader(net.graph)
    batches = map(partial(jax.device_put, device=device), islice(loader, options.batches))
    counts = dict.fromkeys(blob_names, 0)
    log.info("Extracting Features")
    with ExitStack() as stack, show_loop_progress(options.batches, "batches") as advance:
        stack.callback(loader.close)
        feature_batches = extract_features(net, variables, blob_names, batches)
        open_writer = _open_npz_writer if options.db_type == "npz" else partial(_open_database_writer, options.db_type)
        write_functions = [
            stack.enter_context(open_writer(path, name)) for name, path in zip(blob_names, output_paths, strict=True)
        ]
        for values in feature_batches:
            for name, write in zip(blob_names, write_functions, strict=True):
                array = np.asarray(values[name], np.float32)
                with locate_errors(file=options.model):
                    write(array)
                previous_count, counts[name] = counts[name], counts[name] + (len(array) if array.ndim else 0)
                if counts[name] // _LOG_EVERY > previous_count // _LOG_EVERY:
                    log.info("Extracted features of %d query images for feature blob %s", counts[name], name)
            advance()
    for name in blob_names:
        log.info("Extracted features of %d query images for feature blob %s", counts[name], name)
    log.info("Successfully extracted the features!")


@contextmanager
def _open_database_writer(backend: str, path: str, name: str) -> Iterator[Callable[[Any], object]]:
    """Open a new database; yield a function that appends a batch of a blob to it, one record for each row."""
    from ..core.data.database import WRITERS
    from ..core.data.write_imageset import encode_feature_datums

    indices = count()
    with WRITERS[backend](path) as put:

        def write(array: Any) -> None:
            for datum, index in zip(encode_feature_datums(array, name), indices, strict=False):
                put(b"%010d" % index, datum)

        yield write


@contextmanager
def _open_npz_writer(path: str, name: str) -> Iterator[Callable[[Any], object]]:
    """Return a context whose value is a function that collects batches of a blob.

    At its end, the context concatenates the batches along axis 0 and writes them to an .npz file.
    """
    import numpy as np

    from ..core.checkpoints.array_files import write_npz

    batches: list[Any] = []
    yield batches.append
    write_npz(path, {name: np.concatenate([np.atleast_1d(b) for b in batches] or [np.zeros(0)])})
