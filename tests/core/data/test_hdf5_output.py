"""HDF5Output: the questions of every type; it writes its bottoms, and HDF5Data reads the file."""

import h5py
import jax
import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError, DataError
from caffejax.core.program.net import Net
from layer_suite import IMAGE, LABELS, layer_case, properties

test_properties = properties(
    layer_case("HDF5Output", 'hdf5_output_param { file_name: "suite.h5" }', IMAGE, LABELS, tops=0)
)


def net_text(file, rows=3):
    return f"""
      layer {{ name: "in" type: "Input" top: "x" top: "y"
        input_param {{ shape {{ dim: {rows} dim: 2 dim: 4 }} shape {{ dim: {rows} }} }} }}
      layer {{ name: "double" type: "Power" bottom: "x" top: "z" power_param {{ scale: 2 }} }}
      layer {{ name: "out" type: "HDF5Output" bottom: "z" bottom: "y" hdf5_output_param {{ file_name: "{file}" }} }}
      layer {{ name: "sum" type: "Reduction" bottom: "z" top: "sum" loss_weight: 1 }}"""


def make_batch(seed, rows=3):
    rng = np.random.default_rng(seed)
    return {"x": rng.random((rows, 2, 4)).astype(np.float32), "y": np.arange(rows, dtype=np.float32) + seed}


def run_batches(net, *batches):
    params, state = net.init(jax.random.key(0))
    return [net.apply(params, state, inputs)[0] for inputs in batches]


def read_arrays(path):
    with h5py.File(path) as file:
        return {name: file[name][...] for name in file}


def test_every_forward_appends_rows_and_a_new_net_replaces_the_file(tmp_path):
    path, batches = tmp_path / "out.h5", [make_batch(i) for i in range(3)]
    path.write_bytes(b"an old file")
    net = Net(net_text(path))
    assert path.read_bytes() == b"an old file", "a net that never runs replaces nothing"
    for n in range(1, 4):
        run_batches(net, batches[n - 1])
        arrays = read_arrays(path)
        assert set(arrays) == {"data", "label"}
        np.testing.assert_array_equal(arrays["data"], np.concatenate([2 * b["x"] for b in batches[:n]]))
        np.testing.assert_array_equal(arrays["label"], np.concatenate([b["y"] for b in batches[:n]]))
    run_batches(Net(net_text(path)), batches[1])
    assert read_arrays(path)["label"].tolist() == batches[1]["y"].tolist()


def test_gradients_skip_the_layer(tmp_path):
    net = Net("force_backward: true" + net_text(tmp_path / "out.h5"))
    params, state = net.init(jax.random.key(0))
    inputs = make_batch(0)
    grads = jax.grad(lambda x: net.loss(params, state, {**inputs, "x": x})[0])(inputs["x"])
    np.testing.assert_array_equal(grads, np.full((3, 2, 4), 2))
    assert read_arrays(tmp_path / "out.h5")["data"].shape == (3, 2, 4)


def test_hdf5_data_reads_what_hdf5_output_wrote(tmp_path, open_source, hdf5_layer_text):
    run_batches(Net(net_text(tmp_path / "out.h5")), make_batch(0), make_batch(1))
    (tmp_path / "list.txt").write_text("out.h5\n")
    data, label = next(open_source(hdf5_layer_text(tmp_path / "list.txt", "data label", 6)))
    np.testing.assert_array_equal(data, np.concatenate([2 * make_batch(i)["x"] for i in range(2)]))
    np.testing.assert_array_equal(label, [0, 1, 2, 1, 2, 3])


def test_two_nets_do_not_mix_in_one_file(tmp_path):
    first_net, second_net = Net(net_text(tmp_path / "out.h5")), Net(net_text(tmp_path / "out.h5"))
    run_batches(first_net, make_batch(0), make_batch(1))
    run_batches(second_net, make_batch(2))
    with pytest.raises(CaffejaxError, match=r"layer 'out' \(HDF5Output\): is also written by another"):
        run_batches(first_net, make_batch(3))
    run_batches(second_net, make_batch(4))
    assert read_arrays(tmp_path / "out.h5")["label"].tolist() == [2, 3, 4, 4, 5, 6]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (net_text(""), "hdf5_output_param has no file_name"),
        (net_text("x").replace("shape { dim: 3 } }", "shape { dim: 4 } }"), "equal numbers of rows, not 3x2x4 and 4"),
    ],
)
def test_invalid_layers_are_refused(text, message):
    with pytest.raises(CaffejaxError, match=rf"layer 'out' \(HDF5Output\): .*{message}"):
        Net(text)


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no/out.h5: layer 'out' \(HDF5Output\): cannot be written: No such file"):
        run_batches(Net(net_text(tmp_path / "no" / "out.h5")), make_batch(0))
