"""Which blobs hold class numbers or indices: those that a layer counts classes by, and nothing that looks like them."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from caffejax import Net
from caffejax.data.loader import Loader
from caffejax.errors import DataError
from caffejax.graph.index_ranges import find_index_ranges

Shapes = dict[str, tuple[int, ...]]

# what a type's last bottoms hold is no class number, though in these shapes there is one for each place beside axis 1
NO_CLASSES: list[tuple[str, Shapes, str]] = [
    ("SigmoidCrossEntropyLoss", {"x": (4, 1), "targets": (4, 1)}, ""),
    ("SigmoidCrossEntropyLoss", {"x": (4, 1, 3), "targets": (4, 1, 3)}, "loss_param { ignore_label: 9 }"),
    ("ContrastiveLoss", {"a": (4, 1), "b": (4, 1), "similar": (4,)}, ""),
    ("ContrastiveLoss", {"a": (4, 3), "b": (4, 3), "similar": (4,)}, ""),
    ("LSTM", {"x": (4, 3, 3), "cont": (4, 3)}, "recurrent_param { num_output: 2 }"),
    ("RNN", {"x": (4, 3, 3), "cont": (4, 3)}, "recurrent_param { num_output: 2 }"),
    ("LSTMUnit", {"c": (1, 3, 3), "x": (1, 3, 12), "cont": (1, 3)}, ""),
]
CLASSES = {
    "SoftmaxWithLoss": "loss_param { ignore_label: 9 }",
    "Accuracy": "accuracy_param { ignore_label: 9 }",
}


def net(kind: str, shapes: Shapes, settings: str) -> Net:
    """Return a net of HDF5 files in the working directory, with 9 in the last blob and zeros in the others."""
    with h5py.File("rows.h5", "w") as file:
        for name, shape in shapes.items():
            file[name] = np.full(shape, 9.0 if name == list(shapes)[-1] else 0.0, np.float32)
    Path("list.txt").write_text("rows.h5\n")
    tops, bottoms = (" ".join(f'{end}: "{name}"' for name in shapes) for end in ("top", "bottom"))
    n_tops = 2 if kind == "LSTMUnit" else 1
    top_fields = " ".join(f'top: "made{i}"' for i in range(n_tops))
    (batch_size, *_) = next(iter(shapes.values()))
    return Net(
        f"""layer {{ name: "data" type: "HDF5Data" {tops}
             hdf5_data_param {{ source: "list.txt" batch_size: {batch_size} }} }}
        layer {{ name: "layer" type: "{kind}" {bottoms} {top_fields} {settings} }}""",
        "TRAIN",
    )


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("kind", "shapes", "settings"), NO_CLASSES)
def test_targets_similarities_and_marks_are_no_class_numbers(kind: str, shapes: Shapes, settings: str) -> None:
    result = net(kind, shapes, settings)
    assert find_index_ranges(result.graph, with_parts=True) == {}
    assert result.graph.layers[-1].index_bottoms  # though no gradient goes there
    loader = Loader(result.graph)
    np.testing.assert_array_equal(next(loader)[list(shapes)[-1]], np.full(list(shapes.values())[-1], 9))
    loader.close()


@pytest.mark.parametrize("kind", CLASSES)
def test_labels_are_class_numbers_except_the_ignored_one(kind: str) -> None:
    for settings, ignored in (("", None), (CLASSES[kind], 9)):
        result = net(kind, {"x": (4, 3), "label": (4,)}, settings)
        (expected,) = find_index_ranges(result.graph)["label"]
        assert (expected.layer.name, expected.num_classes, expected.ignore_label) == ("layer", 3, ignored)
        loader = Loader(result.graph)
        if ignored is None:
            with pytest.raises(DataError, match=r"'label' holds 9 in row 0 .* 3 classes, 0 to 2"):
                next(loader)
        else:
            np.testing.assert_array_equal(next(loader)["label"], [9] * 4)
        loader.close()


@pytest.mark.parametrize("kind", ["MultinomialLogisticLoss", "HingeLoss"])
def test_an_ignore_label_of_a_fork_is_not_a_class(kind: str) -> None:
    result = net(kind, {"x": (4, 3), "label": (4,)}, "loss_param { ignore_label: 9 }")
    (expected,) = find_index_ranges(result.graph)["label"]
    assert (expected.num_classes, expected.ignore_label) == (3, None)
    loader = Loader(result.graph)
    with pytest.raises(DataError, match=rf"layer 'layer' \({kind}\): blob 'label' holds 9 in row 0"):
        next(loader)
    loader.close()
    inputs = {"x": np.full((4, 3), 1 / 3, np.float32), "label": np.float32([0, 1, 9, 2])}
    assert np.isnan(result.forward({}, {}, inputs)[0]["made0"])


def test_labels_are_followed_through_layers_that_only_move_them() -> None:
    text = """
    layer { name: "in" type: "Input" top: "x" top: "label"
            input_param { shape { dim: 4 dim: 3 } shape { dim: 4 dim: 1 } } }
    layer { name: "flat" type: "Reshape" bottom: "label" top: "flat" reshape_param { shape { dim: -1 } } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "x" bottom: "flat" top: "loss" }
    """
    result = find_index_ranges(Net(text, "TRAIN").graph)
    assert sorted(result) == ["flat", "label"]
    assert result["label"] == result["flat"]


def test_labels_are_not_followed_through_layers_that_compute() -> None:
    text = """
    layer { name: "in" type: "Input" top: "x" top: "label" input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }
    layer { name: "more" type: "Power" bottom: "label" top: "more" power_param { shift: 1 } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "x" bottom: "more" top: "loss" }
    """
    assert sorted(find_index_ranges(Net(text, "TRAIN").graph)) == ["more"]
