"""Calls of pycaffe with wrong arguments raise errors of caffejax that say what is wrong, not errors from inside it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import caffejax.pycaffe as caffe
from caffejax import CaffejaxError
from caffejax.pycaffe import coord_map, draw

NET = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 4 dim: 4 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv" convolution_param { num_output: 2 kernel_size: 3 } }
layer { name: "fc" type: "InnerProduct" bottom: "conv" top: "fc" inner_product_param { num_output: 2 } }
"""
MEMORY_NET = """
layer { name: "d" type: "MemoryData" top: "x" top: "label"
  memory_data_param { batch_size: 2 channels: 1 height: 2 width: 2 } }
layer { name: "fc" type: "InnerProduct" bottom: "x" top: "fc" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
"""
SOLVER_NET = """
layer { name: "x" type: "DummyData" top: "x" dummy_data_param { shape { dim: 1 dim: 2 } } }
layer { name: "fc" type: "InnerProduct" bottom: "x" top: "fc" inner_product_param { num_output: 1 } }
layer { name: "loss" type: "Reduction" bottom: "fc" top: "loss" loss_weight: 1 }
"""
NOTHINGS: list[Any] = [None, 3, -1, 2.5, "", "nothing", b"nothing", [], [1, "a"], {}, {"a": 1}, object(), np.zeros(3), np.zeros((2, 9))]  # fmt: skip # noqa: E501


@pytest.fixture(scope="module")
def s(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The objects whose methods are called."""
    caffe.set_logging(False)
    folder = tmp_path_factory.mktemp("wrong")
    paths = {"net": folder / "net.prototxt", "solver": folder / "solver.prototxt", "weights": folder / "w.caffemodel"}
    paths["net"].write_text(SOLVER_NET)
    paths["solver"].write_text(f'net: "{paths["net"]}" base_lr: 0.1 lr_policy: "fixed" snapshot_prefix: "{folder}/s"')
    (folder / "text.caffemodel").write_text("text")
    (folder / "image.jpg").write_text("text")
    (folder / "deploy.prototxt").write_text(NET)
    net = caffe.Net(NET, caffe.TEST)
    net.save(paths["weights"])
    return SimpleNamespace(
        net=net,
        memory_net=caffe.Net(MEMORY_NET, caffe.TRAIN),
        solver=caffe.SGDSolver(str(paths["solver"])),
        blob=net.blobs["x"],
        param=net.params["fc"][0],
        transformer=caffe.io.Transformer({"x": (2, 3, 4, 4)}),
        classifier=caffe.Classifier(str(folder / "deploy.prototxt"), str(paths["weights"])),
        detector=caffe.Detector(str(folder / "deploy.prototxt"), str(paths["weights"])),
        folder=folder,
        weights=str(paths["weights"]),
        solver_file=str(paths["solver"]),
        image=np.zeros((5, 5, 3), np.float32),
    )


Call = Callable[..., object]
# each with `v`, which stands for each of NOTHINGS
CALLS: dict[str, Call] = {
    "Net(file)": lambda s, v: caffe.Net(v, caffe.TEST),
    "Net(phase)": lambda s, v: caffe.Net(NET, v),
    "Net(level)": lambda s, v: caffe.Net(NET, caffe.TEST, v),
    "Net(stages)": lambda s, v: caffe.Net(NET, caffe.TEST, 0, v),
    "Net(weights)": lambda s, v: caffe.Net(NET, caffe.TEST, weights=v),
    "Net(old weights)": lambda s, v: caffe.Net(NET, v, caffe.TEST),
    "forward(blobs)": lambda s, v: s.net.forward(v),
    "forward([blob])": lambda s, v: s.net.forward([v]),
    "forward(start)": lambda s, v: s.net.forward(start=v),
    "forward(end)": lambda s, v: s.net.forward(end=v),
    "forward(x)": lambda s, v: s.net.forward(x=v),
    "forward(other)": lambda s, v: s.net.forward(other=v),
    "backward(diffs)": lambda s, v: s.net.backward(v),
    "backward(start)": lambda s, v: s.net.backward(start=v),
    "backward(end)": lambda s, v: s.net.backward(end=v),
    "backward(fc)": lambda s, v: s.net.backward(fc=v),
    "backward(other)": lambda s, v: s.net.backward(other=v),
    "deconv(start)": lambda s, v: s.net.deconv(start=v),
    "backward_from_layer(name)": lambda s, v: s.net.backward_from_layer(v, np.zeros((2, 2))),
    "backward_from_layer(diff)": lambda s, v: s.net.backward_from_layer("fc", v),
    "deconv_from_layer(diff)": lambda s, v: s.net.deconv_from_layer("fc", v),
    "forward_all(blobs)": lambda s, v: s.net.forward_all(v, x=np.zeros((3, 3, 4, 4))),
    "forward_all(x)": lambda s, v: s.net.forward_all(x=v),
    "forward_all(other)": lambda s, v: s.net.forward_all(other=v),
    "forward_backward_all(x)": lambda s, v: s.net.forward_backward_all(x=v),
    "forward_backward_all(other)": lambda s, v: s.net.forward_backward_all(x=np.zeros((2, 3, 4, 4)), other=v),
    "forward_backward_all(blobs)": lambda s, v: s.net.forward_backward_all(v, x=np.zeros((2, 3, 4, 4))),
    "forward_backward_all(diffs)": lambda s, v: s.net.forward_backward_all(None, v, x=np.zeros((2, 3, 4, 4))),
    "_forward": lambda s, v: s.net._forward(v, 1),
    "_forward(last)": lambda s, v: s.net._forward(0, v),
    "_backward": lambda s, v: s.net._backward(v, 0),
    "_backward(low)": lambda s, v: s.net._backward(1, v),
    "_deconv": lambda s, v: s.net._deconv(v, 0),
    "_top_ids": lambda s, v: s.net._top_ids(v),
    "_bottom_ids": lambda s, v: s.net._bottom_ids(v),
    "before_forward": lambda s, v: s.net.before_forward(v),
    "after_forward": lambda s, v: s.net.after_forward(v),
    "before_backward": lambda s, v: s.net.before_backward(v),
    "after_backward": lambda s, v: s.net.after_backward(v),
    "set_input_arrays(data)": lambda s, v: s.memory_net.set_input_arrays(v, np.zeros(2, np.float32)),
    "set_input_arrays(labels)": lambda s, v: s.memory_net.set_input_arrays(np.zeros((2, 1, 2, 2), np.float32), v),
    "set_input_arrays without MemoryData": lambda s, v: s.net.set_input_arrays(v, v),
    "copy_from": lambda s, v: s.net.copy_from(v),
    "load_hdf5": lambda s, v: s.net.load_hdf5(v),
    "save": lambda s, v: s.net.save(v),
    "save_hdf5": lambda s, v: s.net.save_hdf5(v),
    "share_with": lambda s, v: s.net.share_with(v),
    "net.blobs": lambda s, v: s.net.blobs[v],
    "net.params": lambda s, v: s.net.params[v],
    "net.layers": lambda s, v: s.net.layers[v if not isinstance(v, int) else v + 100],
    "net.layer_dict": lambda s, v: s.net.layer_dict[v],
    "blob.reshape": lambda s, v: caffe.Blob(1).reshape(v),
    "Blob": lambda s, v: caffe.Blob(v),
    "net blob.reshape": lambda s, v: s.blob.reshape(*s.blob.shape[:3], v),
    "add_blob": lambda s, v: caffe._caffe.BlobVec().add_blob(v),
    "params[i]": lambda s, v: s.net.params["fc"][v if not isinstance(v, int) else v + 100],
    "get_solver": lambda s, v: caffe.get_solver(v),
    "SGDSolver": lambda s, v: caffe.SGDSolver(v),
    "step": lambda s, v: s.solver.step(v),
    "solve": lambda s, v: s.solver.solve(v),
    "restore": lambda s, v: s.solver.restore(v),
    "share_weights": lambda s, v: s.solver.share_weights(v),
    "add_callback(start)": lambda s, v: s.solver.add_callback(v, lambda: None),
    "add_callback(gradients)": lambda s, v: s.solver.add_callback(lambda: None, v),
    "set_device": lambda s, v: caffe.set_device(v),
    "set_random_seed": lambda s, v: caffe.set_random_seed(v),
    "set_solver_rank": lambda s, v: caffe.set_solver_rank(v),
    "set_solver_count": lambda s, v: caffe.set_solver_count(v),
    "set_limits": lambda s, v: caffe.set_limits(max_image_pixels=v),
    "init_log": lambda s, v: caffe.init_log(v),
    "blobproto_to_array": lambda s, v: caffe.io.blobproto_to_array(v),
    "array_to_blobproto": lambda s, v: caffe.io.array_to_blobproto(v),
    "array_to_blobproto(diff)": lambda s, v: caffe.io.array_to_blobproto(np.zeros((2, 2)), v),
    "arraylist_to_blobprotovector_str": lambda s, v: caffe.io.arraylist_to_blobprotovector_str(v),
    "blobprotovector_str_to_arraylist": lambda s, v: caffe.io.blobprotovector_str_to_arraylist(v),
    "array_to_datum": lambda s, v: caffe.io.array_to_datum(v),
    "array_to_datum(label)": lambda s, v: caffe.io.array_to_datum(np.zeros((1, 2, 2)), v),
    "datum_to_array": lambda s, v: caffe.io.datum_to_array(v),
    "load_image": lambda s, v: caffe.io.load_image(v),
    "resize_image": lambda s, v: caffe.io.resize_image(v, (2, 2)),
    "resize_image(dims)": lambda s, v: caffe.io.resize_image(s.image, v),
    "resize_image(order)": lambda s, v: caffe.io.resize_image(s.image, (2, 2), v),
    "oversample": lambda s, v: caffe.io.oversample(v, (2, 2)),
    "oversample(dims)": lambda s, v: caffe.io.oversample([s.image], v),
    "flip_image": lambda s, v: caffe.io.flip_image(v, 1, True),
    "flip_image(scale)": lambda s, v: caffe.io.flip_image(s.image, v, True),
    "Transformer": lambda s, v: caffe.io.Transformer(v),
    "Transformer(shape)": lambda s, v: caffe.io.Transformer({"x": v}),
    "preprocess(name)": lambda s, v: s.transformer.preprocess(v, s.image),
    "preprocess(image)": lambda s, v: s.transformer.preprocess("x", v),
    "deprocess(name)": lambda s, v: s.transformer.deprocess(v, s.image),
    "deprocess(data)": lambda s, v: s.transformer.deprocess("x", v),
    "set_transpose": lambda s, v: s.transformer.set_transpose("x", v),
    "set_channel_swap": lambda s, v: s.transformer.set_channel_swap("x", v),
    "set_mean": lambda s, v: s.transformer.set_mean("x", v),
    "set_raw_scale": lambda s, v: s.transformer.set_raw_scale("x", v),
    "set_input_scale": lambda s, v: s.transformer.set_input_scale("x", v),
    "set_mean(name)": lambda s, v: s.transformer.set_mean(v, np.zeros(3)),
    "Classifier(file)": lambda s, v: caffe.Classifier(v, s.weights),
    "Classifier(weights)": lambda s, v: caffe.Classifier(str(s.folder / "deploy.prototxt"), v),
    "Classifier(dims)": lambda s, v: caffe.Classifier(str(s.folder / "deploy.prototxt"), s.weights, image_dims=v),
    "Classifier(mean)": lambda s, v: caffe.Classifier(str(s.folder / "deploy.prototxt"), s.weights, mean=v),
    "Classifier(swap)": lambda s, v: caffe.Classifier(str(s.folder / "deploy.prototxt"), s.weights, channel_swap=v),
    "Classifier(scale)": lambda s, v: caffe.Classifier(str(s.folder / "deploy.prototxt"), s.weights, raw_scale=v),
    "predict": lambda s, v: s.classifier.predict(v),
    "predict([v])": lambda s, v: s.classifier.predict([v], oversample=False),
    "Detector(pad)": lambda s, v: caffe.Detector(str(s.folder / "deploy.prototxt"), s.weights, context_pad=v),
    "detect_windows": lambda s, v: s.detector.detect_windows(v),
    "detect_windows([v])": lambda s, v: s.detector.detect_windows([v]),
    "detect_windows(file)": lambda s, v: s.detector.detect_windows([(v, [(0, 0, 2, 2)])]),
    "crop(window)": lambda s, v: s.detector.crop(s.image, v),
    "crop(image)": lambda s, v: s.detector.crop(v, (0, 0, 2, 2)),
    "configure_crop": lambda s, v: s.detector.configure_crop(v),
    "draw_net_to_file": lambda s, v: draw.draw_net_to_file(v, str(s.folder / "x.svg")),
    "draw_net": lambda s, v: draw.draw_net(v, "LR"),
    "coord_map": lambda s, v: coord_map.coord_map_from_to(v, v),
    "crop of coord_map": lambda s, v: coord_map.crop(v, v),
    "to_proto": lambda s, v: caffe.to_proto(v),
    "layers.X()": lambda s, v: caffe.layers.Convolution(v).to_proto(),
    "layers.X(field)": lambda s, v: caffe.layers.Convolution(num_output=v).to_proto(),
    "NetSpec.top": lambda s, v: setattr(caffe.NetSpec(), "x", v),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_wrong_argument_raises_no_raw_error(s: Any, name: str) -> None:
    """Arguments that are right, such as a scale of 2.5, may be taken; everything else is a CaffejaxError."""
    problems = []
    for value in NOTHINGS:
        try:
            CALLS[name](s, value)
        except CaffejaxError as error:
            if len(str(error)) < 10:
                problems.append(f"{value!r}: the message is {str(error)!r}")
        except NotImplementedError:
            pass
        except Exception as error:
            problems.append(f"{value!r}: {type(error).__name__}: {error}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("call", "new_name"),
    [
        (lambda s: caffe.Net(str(s.folder / "deploy.prototxt"), s.weights), r"caffe\.TEST, weights="),
        (lambda s: caffe.Net(str(s.folder / "deploy.prototxt")), r"caffe\.TEST"),
        (lambda s: s.net.set_phase_test(), r"caffe\.Net\(file, caffe\.TEST"),
        (lambda s: s.net.set_phase_train(), r"caffe\.Net\(file, caffe\.TRAIN"),
        (lambda s: s.net.set_mode_cpu(), r"caffe\.set_mode_cpu"),
        (lambda s: s.net.set_mode_gpu(), r"caffe\.set_mode_gpu"),
        (lambda s: s.net.set_device(0), r"caffe\.set_device"),
        (lambda s: s.net.set_mean("data", "mean.npy"), r"Transformer.*t\.set_mean\('data', np\.load\(file\)\)"),
        (lambda s: s.net.set_raw_scale("data", 255), r"Transformer.*t\.set_raw_scale"),
        (lambda s: s.net.set_input_scale("data", 255), r"Transformer.*t\.set_input_scale"),
        (lambda s: s.net.set_channel_swap("data", (2, 1, 0)), r"Transformer.*t\.set_channel_swap"),
        (lambda s: s.net.preprocess("data", s.image), r"Transformer.*t\.preprocess"),
        (lambda s: s.net.deprocess("data", s.image), r"Transformer.*t\.deprocess"),
        (lambda s: s.net.Forward(), r"net\.forward"),
        (lambda s: s.net.forwad(), "did you mean 'forward'"),
        (lambda s: caffe.set_phase_test(), r"caffe\.Net\(file, caffe\.TEST"),
        (lambda s: caffe.CaffeNet, r"caffe\.Net"),
        (lambda s: caffe.io.arraylist_to_blobprotovecor_str([]), "arraylist_to_blobprotovector_str"),
        (
            lambda s: caffe.Classifier(str(s.folder / "deploy.prototxt"), s.weights, gpu=True),
            r"caffe\.set_mode_gpu\(\)",
        ),
        (lambda s: caffe.Detector(str(s.folder / "deploy.prototxt"), s.weights, mean_file="m"), r"mean=np\.load"),
        (lambda s: caffe.Classifier(str(s.folder / "deploy.prototxt"), s.weights, scale=2), "no argument 'scale'"),
    ],
)
def test_calls_of_2014_name_the_present_call(s: Any, call: Callable[[Any], object], new_name: str) -> None:
    with pytest.raises(CaffejaxError, match=new_name):
        call(s)


def test_classes_that_scripts_catch_are_kept(s: Any) -> None:
    """Caffe raises an AttributeError, KeyError, ValueError, IndexError or TypeError here."""
    for call, expected_class in (
        (lambda: s.net.nothing, AttributeError),
        (lambda: s.net.blobs["nothing"], KeyError),
        (lambda: s.net.forward(["nothing"]), KeyError),
        (lambda: s.net.forward(start="nothing"), ValueError),
        (lambda: s.net.params["fc"][2], IndexError),
        (lambda: s.net.layers[9], IndexError),
        (lambda: caffe.io.array_to_datum(np.zeros(3)), ValueError),
        (lambda: caffe.Net("absent.prototxt", caffe.TEST), RuntimeError),
        (lambda: caffe.layers.ReLU(3), TypeError),
    ):
        with pytest.raises(expected_class):
            call()
    assert not hasattr(s.net, "nothing")
    assert s.net.blobs.get("nothing") is None
    assert "nothing" not in s.net.blobs
    transformer = caffe.io.Transformer({"x": (2, 3, 4, 4)})
    transformer.set_raw_scale("x", 2)
    transformer.set_raw_scale("x", None)  # removes it, as in Caffe
    assert transformer.raw_scale == {}
    transformer.set_transpose("x", (2, 0, 1))
    transformer.set_input_scale("x", np.array([1, 2, 3]).reshape(3, 1, 1))
    np.testing.assert_array_equal(transformer.preprocess("x", np.ones((4, 4, 3)))[:, 0, 0], [1, 2, 3])
