"""Detection of the blobs that hold class numbers or indices, from the layers that read them."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from caffejax import Net
from caffejax.base.errors import DataError
from caffejax.core.data.loader import Loader
from caffejax.core.graph.index_ranges import find_index_ranges

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


def make_net(layer_type: str, shapes: Shapes, settings: str) -> Net:
    """Return a net of HDF5 files in the working directory, with 9 in the last blob and zeros in the others."""
    with h5py.File("rows.h5", "w") as file:
        for name, shape in shapes.items():
            file[name] = np.full(shape, 9.0 if name == list(shapes)[-1] else 0.0, np.float32)
    Path("list.txt").write_text("rows.h5\n")
    tops, bottoms = (" ".join(f'{end}: "{name}"' for name in shapes) for end in ("top", "bottom"))
    n_tops = 2 if layer_type == "LSTMUnit" else 1
    top_fields = " ".join(f'top: "made{i}"' for i in range(n_tops))
    (batch_size, *_) = next(iter(shapes.values()))
    return Net(
        f"""layer {{ name: "data" type: "HDF5Data" {tops}
             hdf5_data_param {{ source: "list.txt" batch_size: {batch_size} }} }}
        layer {{ name: "layer" type: "{layer_type}" {bottoms} {top_fields} {settings} }}""",
        "TRAIN",
    )


@pytest.fixture(autouse=True)
def _temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("layer_type", "shapes", "settings"), NO_CLASSES)
def test_targets_and_sequence_markers_are_not_index_blobs(layer_type: str, shapes: Shapes, settings: str) -> None:
    result = make_net(layer_type, shapes, settings)
    assert find_index_ranges(result.graph, with_parts=True) == {}
    assert result.graph.layers[-1].index_bottoms  # though no gradient goes there
    loader = Loader(result.graph)
    np.testing.assert_array_equal(next(loader)[list(shapes)[-1]], np.full(list(shapes.values())[-1], 9))
    loader.close()


@pytest.mark.parametrize("layer_type", CLASSES)
def test_labels_have_a_range_and_an_ignore_label(layer_type: str) -> None:
    for settings, ignore_label in (("", None), (CLASSES[layer_type], 9)):
        result = make_net(layer_type, {"x": (4, 3), "label": (4,)}, settings)
        (index_range,) = find_index_ranges(result.graph)["label"]
        assert (index_range.layer.name, index_range.num_classes, index_range.ignore_label) == ("layer", 3, ignore_label)
        loader = Loader(result.graph)
        if ignore_label is None:
            with pytest.raises(DataError, match=r"'label' holds 9 in row 0 .* 3 classes, 0 to 2"):
                next(loader)
        else:
            np.testing.assert_array_equal(next(loader)["label"], [9] * 4)
        loader.close()


@pytest.mark.parametrize("layer_type", ["MultinomialLogisticLoss", "HingeLoss"])
def test_ignore_labels_of_forks_are_out_of_range(layer_type: str) -> None:
    result = make_net(layer_type, {"x": (4, 3), "label": (4,)}, "loss_param { ignore_label: 9 }")
    (index_range,) = find_index_ranges(result.graph)["label"]
    assert (index_range.num_classes, index_range.ignore_label) == (3, None)
    loader = Loader(result.graph)
    with pytest.raises(DataError, match=rf"layer 'layer' \({layer_type}\): blob 'label' holds 9 in row 0"):
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
