"""The loader's check of labels: a label that is not a class of a layer is an error that names its row."""

import numpy as np
import pytest

import caffejax
import caffejax.pycaffe as caffe
from caffejax.base.databases import write_lmdb
from caffejax.base.errors import DataError
from caffejax.core.data.loader import Loader
from caffejax.core.schema import caffe_pb2

NET = """
layer { name: "d" type: "Data" top: "data" top: "label" data_param { source: "%s" batch_size: 5 backend: LMDB } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 3 } }
%s
"""
SOFTMAX = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" %s }'


def make_loader(tmp_path, labels, layers):
    def make_datum(label):
        return caffe_pb2.Datum(channels=1, height=1, width=2, data=b"\1\2", label=label).SerializeToString()

    path = tmp_path / "db"
    write_lmdb(path, ((b"%03d" % n, make_datum(label)) for n, label in enumerate(labels)))
    return Loader(caffejax.Net(NET % (path, layers), "TRAIN").graph)


@pytest.mark.parametrize(
    ("labels", "layers", "message"),
    [
        (
            [0, 1, 3, 2, 0],
            SOFTMAX % "",
            r"layer 'loss' \(SoftmaxWithLoss\): blob '.*' holds 3 in row 2 .* 3 classes, 0 to 2",
        ),
        ([0, 1, 2, 2, -1], SOFTMAX % "", "holds -1 in row 4"),
        ([0, 255, 2, 2, 7], SOFTMAX % "loss_param { ignore_label: 255 }", "holds 7 in row 4"),
        (
            [0, 5, 2, 2, 1],
            'layer { name: "acc" type: "Accuracy" bottom: "ip" bottom: "label" top: "acc" }',
            r"layer 'acc' \(Accuracy\): .* holds 5 in row 1",
        ),
        (
            [0, 4, 2, 2, 1],
            'layer { name: "f" type: "Reshape" bottom: "label" top: "flat" reshape_param { shape { dim: -1 } } }'
            'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "flat" top: "loss" }',
            "holds 4 in row 1",
        ),
        (
            [0, 4, 2, 2, 1],
            'layer { name: "e" type: "Embed" bottom: "label" top: "e" embed_param { input_dim: 4 num_output: 2 } }',
            r"layer 'e' \(Embed\): .* holds 4 in row 1",
        ),
    ],
)
def test_wrong_labels_are_named_with_row_and_layer(tmp_path, labels, layers, message):
    loader = make_loader(tmp_path, labels, layers)
    with pytest.raises(DataError, match=message):
        next(loader)
    loader.close()


@pytest.mark.parametrize(
    ("labels", "layers"),
    [
        ([0, 1, 2, 2, 0], SOFTMAX % ""),
        ([0, 255, 2, 2, -0], SOFTMAX % "loss_param { ignore_label: 255 }"),
        ([0, -1, 2, 2, 0], SOFTMAX % "loss_param { ignore_label: -1 }"),
        ([0, 9, 2, 2, 0], 'layer { name: "l" type: "EuclideanLoss" bottom: "label" bottom: "label" top: "l" }'),
    ],
)
def test_classes_ignored_labels_and_other_numbers_pass(tmp_path, labels, layers):
    loader = make_loader(tmp_path, labels, layers)
    np.testing.assert_array_equal(next(loader)["label"], labels)
    loader.close()


ACCURACY = 'layer { name: "acc" type: "Accuracy" bottom: "ip" bottom: "label" top: "acc" top: "each" %s }'
SOFTMAX_IGNORING_3 = SOFTMAX % "loss_param { ignore_label: 3 }"


def get_warnings(caplog):
    return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]


def test_accuracy_warns_of_labels_that_only_the_loss_ignores(tmp_path, caplog):
    loader = make_loader(tmp_path, [0, 3, 3, 2, 1] * 2, SOFTMAX_IGNORING_3 + ACCURACY % "")
    for _ in range(2):
        np.testing.assert_array_equal(next(loader)["label"], [0, 3, 3, 2, 1])
    loader.close()
    (message,) = get_warnings(caplog)
    assert "Layer 'acc' (Accuracy) counts label 3" in message
    (tmp_path / "other").mkdir()
    loader = make_loader(tmp_path / "other", [0, 3, 4, 2, 1], SOFTMAX_IGNORING_3 + ACCURACY % "")
    with pytest.raises(DataError, match="holds 4 in row 2"):
        next(loader)
    loader.close()


@pytest.mark.parametrize("accuracy_param", ["accuracy_param { ignore_label: 3 }", None])
def test_no_warning_if_no_ignored_label_is_counted_as_wrong(tmp_path, accuracy_param, caplog):
    loader = make_loader(
        tmp_path, [0, 3, 3, 2, 1], SOFTMAX_IGNORING_3 + (ACCURACY % accuracy_param if accuracy_param else "")
    )
    next(loader)
    loader.close()
    assert get_warnings(caplog) == []


def test_accuracy_counts_labels_outside_the_classes_as_wrong(caplog):
    """4 of 6 labels are right as far as they are known; a label of no class is in no class's accuracy."""
    text = """
    layer { name: "d" type: "Input" top: "ip" top: "label" input_param { shape { dim: 6 dim: 3 } shape { dim: 6 } } }
    """
    net = caffe.Net(text + SOFTMAX_IGNORING_3 + ACCURACY % "", caffe.TEST)
    assert len(get_warnings(caplog)) == 1
    net.blobs["ip"].data[...] = np.eye(3)[[0, 1, 2, 0, 0, 1]]
    for invalid_label in (3, -1, 255):
        net.blobs["label"].data[...] = [0, 1, 2, 0, invalid_label, 2]
        net.forward()
        np.testing.assert_allclose(net.blobs["acc"].data, 4 / 6)
        np.testing.assert_allclose(net.blobs["each"].data, [1, 1, 0.5])
