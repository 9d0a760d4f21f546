"""Names of Caffe's Python interface of 2014, with the names that replaced them in Caffe."""

from __future__ import annotations

from typing import Any, NoReturn

from ..base.errors import ArgumentTypeError, UnknownAttributeError, did_you_mean

_TRANSFORMER = "use a transformer: t = caffe.io.Transformer({{'data': net.blobs['data'].data.shape}}), and t.{}"
NET_NAMES = {
    **{
        f"set_phase_{phase}": f"give the phase to the net: caffe.Net(file, caffe.{phase.upper()}, weights=...)"
        for phase in ("test", "train")
    },
    **{name: f"call caffe.{name}" for name in ("set_mode_cpu", "set_mode_gpu", "set_device")},
    "set_mean": _TRANSFORMER.format(
        "set_mean('data', np.load(file)) (an array, not a file; for the mode 'channel' np.load(file).mean(1).mean(1))"
    ),
    "set_raw_scale": _TRANSFORMER.format("set_raw_scale('data', 255)"),
    "set_input_scale": _TRANSFORMER.format("set_input_scale('data', scale)"),
    "set_channel_swap": _TRANSFORMER.format("set_channel_swap('data', (2, 1, 0))")
    + " after t.set_transpose('data', (2, 0, 1))",
    "preprocess": _TRANSFORMER.format("preprocess('data', image)"),
    "deprocess": _TRANSFORMER.format("deprocess('data', array)"),
    "mean": _TRANSFORMER.format("mean"),
    "raw_scale": _TRANSFORMER.format("raw_scale"),
    "input_scale": _TRANSFORMER.format("input_scale"),
    "channel_swap": _TRANSFORMER.format("channel_swap"),
    "Forward": "call net.forward",
    "Backward": "call net.backward",
}
MODULE_NAMES = {name: NET_NAMES[name] for name in ("set_phase_test", "set_phase_train")} | {
    "CaffeNet": "the class is caffe.Net",
}
IO_NAMES = {"arraylist_to_blobprotovecor_str": "its name is caffe.io.arraylist_to_blobprotovector_str"}
CLASSIFIER_ARGUMENTS = {
    "gpu": "call caffe.set_mode_gpu() or caffe.set_mode_cpu() instead",
    "mean_file": "give the array instead: mean=np.load(mean_file)",
}


def refuse_attribute(item: Any, name: str) -> NoReturn:
    """Raise the error for an attribute that a net does not have; for a name of 2014 it says what replaced it."""
    if name in NET_NAMES:
        raise UnknownAttributeError(
            f"nets have no attribute '{name}' since Caffe's interface of 2014; {NET_NAMES[name]}"
        )
    similar = "" if name.startswith("_") else did_you_mean(name, (n for n in dir(type(item)) if not n.startswith("_")))
    raise UnknownAttributeError(f"'{type(item).__name__}' object has no attribute '{name}'{similar}")


def refuse_arguments(cls: str, arguments: dict[str, Any]) -> None:
    """Raise an error for arguments that a class does not take; for names of 2014 it says what replaced them."""
    if arguments:
        raise ArgumentTypeError(
            f"{cls} has no argument '{name}'"
            + (
                f" since Caffe's interface of 2014; {CLASSIFIER_ARGUMENTS[name]}"
                if name in CLASSIFIER_ARGUMENTS
                else ""
            )
            for name in arguments
        )
