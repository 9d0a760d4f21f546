"""Images that cannot be decoded are errors, or are replaced by the next image with `skip_bad`."""

import cv2
import numpy as np
import pytest
from labelled_images import read_labels

from caffejax.base.databases import write_leveldb, write_lmdb
from caffejax.base.errors import DataError
from caffejax.core.schema import caffe_pb2

BAD_INDICES = (0, 3, 4, 9)  # of ten
# what stands for each example: itself, or the next good one, round and round
REPLACEMENTS = [1, 1, 2, 5, 5, 5, 6, 7, 8, 1]


def encode_png(i, size=(4, 5)):
    return cv2.imencode(".png", np.full(size, 10 * i, np.uint8))[1].tobytes()


def make_record(i, bad_indices):
    if i in bad_indices:
        return b"\x08\xff" if i % 2 else caffe_pb2.Datum(encoded=True, data=b"no image", label=i).SerializeToString()
    return caffe_pb2.Datum(encoded=True, data=encode_png(i), label=i).SerializeToString()


@pytest.fixture(params=["LMDB", "LEVELDB", "list"])
def make_net(request, tmp_path):
    """Make a data layer, a database or a list, over ten images; the images with these numbers are bad."""

    def net_text(bad_indices, batch_size=3, settings=""):
        if request.param == "list":
            for i in range(10):
                (tmp_path / f"{i}.png").write_bytes(b"no image" if i in bad_indices else encode_png(i))
            (tmp_path / "list").write_text("".join(f"{i}.png {i}\n" for i in range(10)))
            layer_type, param = "ImageData", f'image_data_param {{ source: "{tmp_path}/list" is_color: false'
        else:
            write = write_lmdb if request.param == "LMDB" else write_leveldb
            write(tmp_path / "db", ((b"%03d" % i, make_record(i, bad_indices)) for i in range(10)))
            layer_type, param = "Data", f'data_param {{ source: "{tmp_path}/db" backend: {request.param}'
        return f"""layer {{ name: "d" type: "{layer_type}" top: "data" top: "label"
            {param} batch_size: {batch_size} {settings} }} }}"""

    return net_text


@pytest.mark.parametrize("workers", [0, 2])
def test_the_next_good_image_replaces_each_bad_one_with_one_warning(make_net, open_source, caplog, workers):
    net = make_net(BAD_INDICES)
    labels_read = read_labels(open_source(net, workers=workers, skip_bad=True), 10)
    assert labels_read == REPLACEMENTS * 3
    warnings = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert all(w.endswith("; the next image replaces it") for w in warnings)
    assert len(warnings) == len(BAD_INDICES)
    assert all(any(name in w for w in warnings) for name in ("0", "3", "4", "9"))


def test_the_replacement_of_a_bad_image_depends_on_its_position(make_net, open_source):
    net = make_net(BAD_INDICES)
    for start in range(10):
        resumed_source = open_source(net, skip_bad=True)
        resumed_source.set_state({"examples": start})
        assert read_labels(resumed_source, 4) == [REPLACEMENTS[(start + i) % 10] for i in range(12)]


def test_without_skip_bad_a_bad_image_is_fatal(make_net, open_source):
    source = open_source(make_net(BAD_INDICES[1:]))
    assert read_labels(source, 1) == [0, 1, 2]
    with pytest.raises(DataError, match=r"3.*(is not a Datum|cannot be decoded)"):
        next(source)


def test_too_many_bad_images_in_a_row_are_an_error(make_net, open_source):
    source = open_source(make_net((1, 2, 3, 4)), skip_bad=True)
    with pytest.raises(DataError, match=r"4.*; the 3 preceding images could not be decoded"):
        read_labels(source, 3)


def test_images_of_another_shape_are_not_skipped(open_source, data_layer_text, make_raw_datum, tmp_path):
    shapes = [(2, 6, 7)] * 3 + [(2, 6, 8)]
    records = [(b"%03d" % i, make_raw_datum(i, shape)) for i, shape in enumerate(shapes)]
    records[2] = (b"002", b"\x08\xff")
    write_lmdb(tmp_path / "db", records)
    with pytest.raises(DataError, match=r"record '003' becomes 2x6x8"):
        next(open_source(data_layer_text(tmp_path / "db", 3), skip_bad=True))


def test_damaged_databases_are_not_skipped(open_source, data_layer_text, tmp_path, make_raw_datum):
    write_leveldb(tmp_path / "db", ((b"%03d" % i, make_raw_datum(i)) for i in range(100)), compress=False)
    table = next((tmp_path / "db").glob("*.ldb"))
    net = data_layer_text(tmp_path / "db", 3, data="backend: LEVELDB")
    content = bytearray(table.read_bytes())
    content[50] ^= 1
    table.write_bytes(content)
    with pytest.raises(DataError, match="wrong checksum"):
        next(open_source(net, skip_bad=True))
