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

from ..errors import CaffejaxError, locate_errors
from ..glog import log, start_logging
from . import device_flags, flags, net_flags
from .progress_bar import counter

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
    """Run the net and store its blobs."""
    start_logging()
    from pathlib import Path

    import jax
    import numpy as np

    from ..data.loader import Loader
    from ..debugging import extract_features
    from ..net import Net
    from ..paths import check_exist

    names, targets = options.blobs.split(","), options.databases.split(",")
    if len(names) != len(targets):
        raise CaffejaxError(
            f"{len(names)} blobs need {len(names)} databases, but the number of databases is {len(targets)}"
        )
    if duplicates := [target for i, target in enumerate(targets) if target in targets[:i]]:
        raise CaffejaxError(f"the database '{duplicates[0]}' is named twice; give each blob a different one")
    number = "0" if options.kind == "CPU" else options.number.removeprefix("DEVICE_ID=")
    device = device_flags.get_device(options.kind.lower(), number)
    check_exist([options.model, options.weights])
    net = Net(Path(options.model), "TEST", data_config=flags.make_data_config(options))
    variables = jax.device_put(net_flags.load_variables(net, options.weights, options.strict_weights), device)
    loader = Loader(net.graph)
    batches = map(partial(jax.device_put, device=device), islice(loader, options.batches))
    counts = dict.fromkeys(names, 0)
    log.info("Extracting Features")
    with ExitStack() as stack, counter(options.batches, "batches") as advance:
        stack.callback(loader.close)
        extracted = extract_features(net, variables, names, batches)
        writer = _npz_writer if options.db_type == "npz" else partial(_database_writer, options.db_type)
        writers = [stack.enter_context(writer(target, name)) for name, target in zip(names, targets, strict=True)]
        for values in extracted:
            for name, write in zip(names, writers, strict=True):
                array = np.asarray(values[name], np.float32)
                with locate_errors(file=options.model):
                    write(array)
                previous, counts[name] = counts[name], counts[name] + (len(array) if array.ndim else 0)
                if counts[name] // _LOG_EVERY > previous // _LOG_EVERY:
                    log.info("Extracted features of %d query images for feature blob %s", counts[name], name)
            advance()
    for name in names:
        log.info("Extracted features of %d query images for feature blob %s", counts[name], name)
    log.info("Successfully extracted the features!")


@contextmanager
def _database_writer(kind: str, target: str, name: str) -> Iterator[Callable[[Any], object]]:
    """Open a new database; yield a function that appends a batch of a blob to it, one record for each row."""
    from ..data.database import WRITERS
    from ..data.write_imageset import encode_feature_datums

    numbers = count()
    with WRITERS[kind](target) as put:

        def write(array: Any) -> None:
            for datum, number in zip(encode_feature_datums(array, name), numbers, strict=False):
                put(b"%010d" % number, datum)

        yield write


@contextmanager
def _npz_writer(target: str, name: str) -> Iterator[Callable[[Any], object]]:
    """Return a context whose value is a function that collects batches of a blob.

    At its end, the context concatenates the batches along axis 0 and writes them to an .npz file.
    """
    import numpy as np

    from ..checkpoints.array_files import write_npz

    batches: list[Any] = []
    yield batches.append
    write_npz(target, {name: np.concatenate([np.atleast_1d(b) for b in batches] or [np.zeros(0)])})
