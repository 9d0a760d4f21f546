"""The AnnotatedData layer of the SSD fork: batches of images with boxes, from a database of AnnotatedDatums."""

from __future__ import annotations

import logging
import os
from contextlib import closing

from ..errors import DataError
from ..layers.context import Site
from ..layers.label import Label
from ..layers.registry import register
from ..layers.source import Look, Tops
from ..layers.types import Facts, LayerType, Signature
from ..schema.caffe_pb2 import AnnotatedDatum
from .annotated.batches import COUNTED, AnnotatedBatches
from .annotated.examples import AnnotatedExamples
from .annotated.label_map import read_label_map
from .annotated.picture import CLASS
from .examples import check_data_param, open_records
from .fields import refuse_unsupported
from .pipeline import Batches
from .reads import prefetch_depth, reads_batches
from .rng import CounterRng

log = logging.getLogger("caffejax.data")

_KNOWN = {"batch_sampler", "label_map_file", "anno_type"}


def look_at_annotated_data(site: Site) -> Look:
    """Look at an AnnotatedData layer's settings and the first records of its database."""
    param = site.layer.annotated_data_param
    check_data_param(site)
    refuse_unsupported(param, "annotated_data_param", _KNOWN)
    if param.anno_type != AnnotatedDatum.BBOX:
        raise DataError("annotated_data_param.anno_type must be BBOX; others are not supported")
    enough = max(COUNTED, 1 + site.layer.data_param.batch_size)
    with closing(_open_examples(site, enough)) as examples:
        _check_classes(site, examples)
        look = AnnotatedBatches(site, examples, _rng(site)).look()
    n = len(site.layer.top)
    return Look(look.tops[:n], look.finish, look.given[:n] if look.given else None)


def open_annotated_data(site: Site, tops: Tops) -> Batches:
    """Open an AnnotatedData layer's LMDB or LevelDB of images with boxes, one row of the label for each box.

    Rows of the label are padded with -1 to a power of two.
    """
    return AnnotatedBatches(site, _open_examples(site), _rng(site), tops)


def _check_classes(site: Site, examples: AnnotatedExamples) -> None:
    """Check that the label map, if it is there, has the classes of the first records. (The fork never reads it.)"""
    name = site.layer.annotated_data_param.label_map_file
    if not name:
        return
    path = site.path(name)
    if not os.path.exists(path):
        log.warning("layer '%s': there is no label map '%s', so classes are not checked", site.layer.name, name)
        return
    known = set(read_label_map(path).values())
    found = {
        int(c) for record in examples.annotations(COUNTED, site.reading.skip_bad) for c in record.objects[:, CLASS]
    }
    if found - known:
        classes = ", ".join(map(str, sorted(found - known)))
        raise DataError(f"the database has objects of classes that label map {path} does not have: {classes}")


def _open_examples(site: Site, enough: int | None = None) -> AnnotatedExamples:
    return AnnotatedExamples(*open_records(site, _rng(site), enough))


def _rng(site: Site) -> CounterRng:
    return CounterRng(site.reading.seed, site.layer.name)


register(
    LayerType(
        Signature("AnnotatedData", bottoms=0, tops=(1, 2), param="annotated_data_param"),
        reads_batches(look_at_annotated_data, open_annotated_data, prefetch_depth),
        facts=Facts(
            origin="SSD",
            label=Label(edge=lambda layer: f"Batch {layer.data_param.batch_size}"),
            restrictions="Boxes are the only annotations. In training, the fork keeps what it distorts, expands or "
            "samples as JPEG in between; here this is done in TEST only.",
        ),
    )
)
