"""Callbacks of a net, called before and after each layer."""

import numpy as np

from .conftest import CLOSE, make_input_net


def test_callbacks_are_called_before_and_after_each_layer() -> None:
    net, net_without_callbacks = make_input_net(), make_input_net()
    net_without_callbacks.share_with(net)
    calls: list[tuple[str, int]] = []
    for event in ("before_forward", "after_forward", "before_backward", "after_backward"):
        getattr(net, event)(lambda i, event=event: calls.append((event, i)))
    for options, first, last in (({}, 0, len(net.layers) - 1), ({"start": "fc1", "end": "sum"}, 6, 9)):
        calls.clear()
        net.forward(**options)
        assert calls == [(f"{w}_forward", i) for i in range(first, last + 1) for w in ("before", "after")]
    calls.clear()
    net.backward()
    assert calls == [(f"{w}_backward", i) for i in range(len(net.layers) - 1, -1, -1) for w in ("before", "after")]
    net_without_callbacks.forward()
    net_without_callbacks.backward()
    for name, blobs in net_without_callbacks.params.items():
        np.testing.assert_allclose(net.params[name][0].diff, blobs[0].diff, **CLOSE)


def test_callbacks_may_change_blobs() -> None:
    net = make_input_net()

    def clear_fc2(i: int) -> None:
        if net._layer_names[i] == "fc2":
            net.blobs["fc2"].data[...] = 0

    net.after_forward(clear_fc2)
    net.forward()
    np.testing.assert_array_equal(net.blobs["sum"].data, net.blobs["fc1"].data)
