"""What units of layers leave for the backward pass."""

import numpy as np
from schedule_nets import CONFIGS, KEY, inputs_of

from caffejax import Net
from caffejax.execution.running import Given
from caffejax.execution.units import units_of


def test_what_the_residuals_are() -> None:
    """Of convolution with ReLU its top; of pooling places in int8; of a view nothing; of what is fed nothing."""
    net = Net(CONFIGS / "lenet" / "train_val.prototxt", "TRAIN")
    variables = net.init(KEY)
    units, values = units_of(net.schedule, Given(*variables, inputs_of(net, 64), KEY, {}))
    residuals = {unit.steps[0].first.name: unit.residuals for unit in units}
    top = {name: int(np.prod(blob.shape)) for name, blob in net.graph.blobs.items()}
    assert residuals["data"] == residuals["label"] == 0
    assert residuals["pool1"] == top["pool1"] * 5
    assert residuals["ip1"] >= top["ip1"] * 4
    assert sum(v.bytes for v in values if v.made < 2) == 0
