"""Comparison of dumps finds an error that is planted in a layer, and reports missing, random and NaN values."""

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
import pytest

from caffejax.core.program.net import Net
from caffejax.tools.debugging.dumps import Dump, compare_dumps, compute_distance, record_dump, replay_dump

# a layer of each kind, in place and branched, shared params, a name with a slash and one that is not ASCII
NET_TEXT = """
name: "planted"
layer { name: "data" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 3 dim: 2 dim: 6 dim: 6 } shape { dim: 3 } } }
layer { name: "conv/1x1" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "gaussian" std: 0.5 } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param { bias_term: true } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" relu_param { negative_slope: 0.1 } }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: AVE kernel_size: 2 stride: 2 } }
layer { name: "norm" type: "LRN" bottom: "pool" top: "norm" lrn_param { local_size: 3 alpha: 0.5 } }
layer { name: "../größe" type: "Power" bottom: "pool" top: "power" power_param { scale: 2 } }
layer { name: "sum" type: "Eltwise" bottom: "norm" bottom: "power" top: "sum" }
layer { name: "ip1" type: "InnerProduct" bottom: "sum" top: "ip1" param { name: "w" } param { name: "b" }
  inner_product_param { num_output: 5 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "ip2" type: "InnerProduct" bottom: "norm" top: "ip2" param { name: "w" } param { name: "b" }
  inner_product_param { num_output: 5 } }
layer { name: "both" type: "Concat" bottom: "ip1" bottom: "ip2" top: "both" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "both" bottom: "label" top: "loss" }
"""
# what each of its layers without params computes otherwise, all else being equal
EDITS = {
    "bn": ('top: "conv" }', 'top: "conv" batch_norm_param { eps: 0.1 } }'),
    "relu": ("negative_slope: 0.1", "negative_slope: 0.11"),
    "pool": ("pool: AVE", "pool: MAX"),
    "norm": ("alpha: 0.5", "alpha: 0.51"),
    "../größe": ("scale: 2", "scale: 2 shift: 0.01"),
    "sum": ('top: "sum" }', 'top: "sum" eltwise_param { coeff: 1 coeff: -1 } }'),
    "both": ('bottom: "ip1" bottom: "ip2"', 'bottom: "ip2" bottom: "ip1"'),
    "loss": ('top: "loss" }', 'top: "loss" loss_param { normalization: NONE } }'),
}
LAYERS_WITH_WEIGHTS = ("conv/1x1", "scale", "ip1", "ip2")


def mark_long(names: Iterable[str], short_count: int = 2) -> list[Any]:
    """All names; those after the first two are left to the long run."""
    return [pytest.param(name, marks=[pytest.mark.long] if i >= short_count else []) for i, name in enumerate(names)]


def make_dump(text: str = NET_TEXT, phase: Any = "TRAIN", **options: Any) -> tuple[Net, Dump]:
    net = Net(text, phase)
    return net, record_dump(net, net.init(jax.random.key(1)), backward=True, **options)


@pytest.fixture(scope="module")
def dump() -> Dump:
    return make_dump()[1]


def test_a_net_equals_itself(dump: Dump) -> None:
    result = compare_dumps(dump, replay_dump(dump, Net(NET_TEXT, "TRAIN")))
    assert result.ok, str(result)
    rows = {(row.layer, row.kind, row.name) for row in result.rows}
    assert {
        ("scale", "top", "conv"),
        ("relu", "diff", "conv"),
        ("ip2", "grad", "1"),
        ("../größe", "top", "power"),
    } <= rows
    assert not any(layer.random for layer in dump.layers)


@pytest.mark.parametrize("layer", mark_long(EDITS))
def test_a_layer_that_computes_differently_is_found(layer: str, dump: Dump) -> None:
    start = NET_TEXT.index(f'name: "{layer}"')
    text = NET_TEXT[:start] + NET_TEXT[start:].replace(*EDITS[layer], 1)
    assert text != NET_TEXT
    net = Net(text, "TRAIN")
    first_difference = compare_dumps(dump, replay_dump(dump, net)).first_difference
    assert first_difference is not None
    assert first_difference.layer == layer
    # each layer by itself, nothing else parts
    assert {row.layer for row in compare_dumps(dump, replay_dump(dump, net, isolate_layers=True)).differences} == {
        layer
    }


def test_isolated_layers_differ_only_at_the_changed_array(dump: Dump) -> None:
    """A rounding that is blown up, as one that moves a maximum would be, reaches no other layer."""
    changed_dump = replace_array(dump, "blob/pool", dump.arrays["blob/pool"] * 1.1)
    differing_arrays = {
        (row.layer, row.kind)
        for row in compare_dumps(
            changed_dump, replay_dump(changed_dump, Net(NET_TEXT, "TRAIN"), isolate_layers=True)
        ).differences
    }
    # the layer that does not make that, and those that read it through the Split
    assert differing_arrays == {("pool", "top"), ("pool_pool_0_split", "top")}
    changed_dump = replace_array(dump, "diff/ip1", dump.arrays["diff/ip1"] * 1.1)
    differing_arrays = {
        (row.layer, row.kind)
        for row in compare_dumps(
            changed_dump, replay_dump(changed_dump, Net(NET_TEXT, "TRAIN"), isolate_layers=True)
        ).differences
    }
    assert differing_arrays == {
        ("both", "diff"),
        ("ip1", "grad"),
        ("ip1", "diff"),
        ("ip2", "grad"),
    }  # they share their weights


@pytest.mark.long
def test_each_layer_reads_what_the_dump_has() -> None:
    """If the dump lacks a blob, or shapes differ, a layer reads the results of the layers before it."""
    net, dump = make_dump()
    dump_without_pool = dataclasses.replace(dump, arrays={k: v for k, v in dump.arrays.items() if k != "blob/pool"})
    assert compare_dumps(dump, replay_dump(dump_without_pool, net, isolate_layers=True)).ok
    wider_net = Net(NET_TEXT.replace("num_output: 5", "num_output: 6"), "TRAIN")
    result = compare_dumps(dump, replay_dump(dump, wider_net, wider_net.init(jax.random.key(0)), isolate_layers=True))
    assert {row.layer for row in result.differences if row.kind == "top"} == {"conv/1x1", "ip1", "ip2", "both", "loss"}


@pytest.mark.parametrize("rows", [1, 3])
def test_isolated_layers_read_the_valid_rows(rows: int) -> None:
    """After a blob whose rows depend on the data, layers read the dump's number of rows."""
    text = """
    layer { name: "in" type: "Input" top: "loc" top: "conf" top: "priors"
      input_param { shape { dim: 1 dim: 12 } shape { dim: 1 dim: 6 } shape { dim: 1 dim: 2 dim: 12 } } }
    layer { name: "out" type: "DetectionOutput" bottom: "loc" bottom: "conf" bottom: "priors" top: "out"
      detection_output_param { num_classes: 2 keep_top_k: 5 confidence_threshold: 0.5
      nms_param { nms_threshold: 0.9 top_k: 5 } } }
    layer { name: "double" type: "Power" bottom: "out" top: "twice" power_param { scale: 2 } }
    """
    boxes = np.array([[0, 0, 0.4, 0.4], [0.5, 0.5, 0.9, 0.9], [0, 0.5, 0.4, 0.9]], np.float32)
    priors = np.stack([boxes.ravel(), np.full(12, 0.1, np.float32)])[None]
    conf = np.ravel([[0.1, 0.9]] * rows + [[0.9, 0.1]] * (3 - rows))[None]
    net = Net(text)
    dump = record_dump(net, net.init(jax.random.key(0)), {"loc": np.zeros((1, 12)), "conf": conf, "priors": priors})
    assert dump.arrays["blob/out"].shape[2] == rows
    replayed = replay_dump(dump, net, isolate_layers=True)
    assert compare_dumps(dump, replayed).ok, str(compare_dumps(dump, replayed))


def replace_array(dump: Dump, member: str, array: Any) -> Dump:
    return dataclasses.replace(dump, arrays={**dump.arrays, member: array})


@pytest.mark.parametrize("layer", mark_long(LAYERS_WITH_WEIGHTS))
def test_one_weight_that_differs_is_found(layer: str, dump: Dump) -> None:
    changed_weight = dump.arrays[f"param/{layer}/0"].copy()
    changed_weight.flat[-1] += 0.1
    unshared_net = Net(NET_TEXT.replace('param { name: "w" } param { name: "b" }', ""), "TRAIN")
    replayed = replay_dump(replace_array(dump, f"param/{layer}/0", changed_weight), unshared_net)
    first_difference = compare_dumps(dump, replayed).first_difference
    assert first_difference is not None
    assert (first_difference.layer, first_difference.kind, first_difference.name) == (layer, "param", "0")
    arrays_without_params = {name: array for name, array in replayed.arrays.items() if not name.startswith("param/")}
    first_difference = compare_dumps(
        dump, dataclasses.replace(replayed, arrays=arrays_without_params)
    ).first_difference  # and by the numbers alone
    assert first_difference is not None
    assert (first_difference.layer, first_difference.kind) == (layer, "top")


def test_every_layer_is_changed_in_a_test(dump: Dump) -> None:
    computing_layers = [layer.name for layer in dump.layers if layer.bottoms and layer.type != "Split"]
    assert sorted(computing_layers) == sorted((*EDITS, *LAYERS_WITH_WEIGHTS))


def find_owner(dump: Dump, member: str) -> tuple[str, str]:
    """The layer that an array belongs to, and its name there: of a diff, the layer that reads the blob."""
    kind, _, blob = member.partition("/")
    if kind in ("param", "grad", "top"):
        layer, name = blob.rsplit("/", 1)
        return layer, name
    if kind == "top_diff":
        producer, blob = blob.rsplit("/", 1)
    else:
        producers = [layer.name for layer in dump.layers if blob in layer.tops]
        producer = producers[-1] if kind == "blob" else producers[0]
    index = [layer.name for layer in dump.layers].index(producer)
    readers = [layer.name for layer in dump.layers[index + 1 :] if blob in layer.bottoms]
    return (readers[0] if kind in ("diff", "top_diff") and readers else producer), blob


def test_an_error_in_any_array_is_found_at_its_layer(dump: Dump) -> None:
    rng = np.random.default_rng(0)
    members = [member for member in dump.arrays if member != "loss"]
    assert len(members) > 50
    for member in members:
        changed_array = dump.arrays[member].copy()
        changed_array.flat[rng.integers(changed_array.size)] += 0.01 * (np.abs(changed_array).max() + 1)
        (row,) = compare_dumps(dump, replace_array(dump, member, changed_array)).differences
        assert (row.layer, row.name) == find_owner(dump, member), member


def test_nan_at_the_same_index_is_equal(dump: Dump) -> None:
    nonfinite_array = dump.arrays["blob/sum"].copy()
    nonfinite_array[0, 0, 0, :2] = np.nan, np.inf
    nonfinite_dump = replace_array(dump, "blob/sum", nonfinite_array)
    assert compare_dumps(nonfinite_dump, nonfinite_dump).ok
    (row,) = compare_dumps(dump, nonfinite_dump).differences
    assert (row.layer, row.distance and row.distance.position) == ("sum", (0, 0, 0, 0))
    assert "off by inf" in str(row)
    changed_sign = nonfinite_array.copy()
    changed_sign[0, 0, 0, 1] = -np.inf
    assert len(compare_dumps(nonfinite_dump, replace_array(dump, "blob/sum", changed_sign)).differences) == 1


def test_missing_arrays_and_wrong_shapes_differ(dump: Dump) -> None:
    def drop_arrays(*starts: str) -> Dump:
        return dataclasses.replace(dump, arrays={k: v for k, v in dump.arrays.items() if not k.startswith(starts)})

    assert {r.verdict for r in compare_dumps(dump, drop_arrays("blob/sum")).differences} == {"only in A"}
    assert {r.verdict for r in compare_dumps(drop_arrays("blob/sum"), dump).differences} == {"only in B"}
    # kinds that a dump does not hold at all were not recorded; of blobs written over, the last value may be all
    for kinds in (("diff/", "grad/", "top_diff/"), ("param/",), ("input/",), ("top/", "top_diff/")):
        assert compare_dumps(dump, drop_arrays(*kinds)).ok, kinds
    assert {r.layer for r in compare_dumps(dump, drop_arrays("grad/conv")).differences} == {"conv/1x1"}
    (row,) = compare_dumps(dump, replace_array(dump, "blob/ip1", np.zeros((3, 4)))).differences
    assert str(row) == "top ip1 has shape 3x5 in A and 3x4 in B"
    dump_without_norm = dataclasses.replace(dump, layers=tuple(x for x in dump.layers if x.name != "norm"))
    assert [(row.layer, row.verdict) for row in compare_dumps(dump, dump_without_norm).differences] == [
        ("norm", "only in A")
    ]
    assert not compare_dumps(drop_arrays(""), drop_arrays("")).ok  # there was nothing to compare


@pytest.mark.parametrize("name", ["data", "images"])
def test_nets_for_training_and_deployment_differ_in_labels_and_outputs_only(name: str) -> None:
    layers_before_loss, _, loss = NET_TEXT.rpartition("layer {")
    deploy = (
        layers_before_loss.replace('name: "data"', f'name: "{name}"')
        .replace(' top: "label"', "")
        .replace("shape { dim: 3 } ", "")
    )
    net = Net(NET_TEXT, "TEST")
    dump = record_dump(net, net.init(jax.random.key(1)))
    assert "SoftmaxWithLoss" in loss
    result = compare_dumps(
        dump, replay_dump(dump, Net(deploy + 'layer { name: "prob" type: "Softmax" bottom: "both" top: "prob" }'))
    )
    assert {(row.name, row.verdict) for row in result.differences} == {
        ("label", "only in A"),
        ("loss", "only in A"),
        ("prob", "only in B"),
    }
    assert re.search(r"All \d+ arrays that are in both dumps are equal\.$", str(result))


def test_random_layers_count_only_with_compare_random() -> None:
    dropout = 'layer { name: "drop" type: "Dropout" bottom: "norm" top: "norm" } '
    sum_start = NET_TEXT.index('layer { name: "sum"')
    net, a = make_dump(NET_TEXT[:sum_start] + dropout + NET_TEXT[sum_start:])
    b = replay_dump(a, net, seed=7)
    result = compare_dumps(a, b)
    assert [layer.name for layer in a.layers if layer.random] == ["drop"]
    assert result.ok
    assert {"drop", "sum", "loss"} <= {row.layer for row in result.rows if row.verdict == "random"}
    assert all(row.verdict == "equal" for row in result.rows if row.layer in ("conv/1x1", "pool") and row.kind == "top")
    first_difference = compare_dumps(a, b, compare_random=True).first_difference
    assert first_difference is not None
    assert first_difference.layer == "drop"
    result = compare_dumps(a, replay_dump(a, net, seed=7, isolate_layers=True))
    assert result.ok
    assert {row.layer for row in result.rows if row.verdict == "random"} == {"drop"}


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_dumps_of_other_floats_are_compared(dump: Dump, dtype: Any) -> None:
    arrays = {name: array.astype(dtype) for name, array in dump.arrays.items()}
    assert compare_dumps(dump, dataclasses.replace(dump, arrays=arrays), rtol=1e-3, atol=1e-4).ok


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_one_nonzero_value_among_zeros_differs(value: float) -> None:
    result = compute_distance(np.zeros(3, np.float32), np.array([0, value, 0], np.float32))
    assert (result.error, result.position, result.scale, result.relative) == (np.inf, (1,), 0.0, np.inf)


def test_zero_tops_are_marked_as_proving_nothing(dump: Dump) -> None:
    zeros = dataclasses.replace(dump, arrays={name: np.zeros_like(array) for name, array in dump.arrays.items()})
    assert re.search(r"\d+ tops of these prove nothing, because all values are 0", str(compare_dumps(zeros, zeros)))
    assert "prove nothing" not in str(compare_dumps(dump, dump))


@pytest.mark.filterwarnings("error")
def test_numbers_whose_squares_overflow_have_a_distance() -> None:
    result = compute_distance(np.array([3e300, 0.0]), np.array([3e300, 4e300]))
    assert (result.error, result.scale) == (4e300, 4e300)
    assert result.cosine == pytest.approx(0.6)
