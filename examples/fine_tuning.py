"""Fine-tune a .caffemodel: learn even from odd with the features of a net that has learned digits.

Layers of the same name are loaded from the file. A layer with another name is newly initialised, and learns faster.
Run lenet_from_arrays.py first: it writes lenet.prototxt and lenet.caffemodel.
"""

from pathlib import Path

import numpy as np
from digits import load_digits, require_files

import caffejax

require_files("lenet.prototxt", "lenet.caffemodel")

net = Path("lenet.prototxt").read_text()
net = net.replace('"ip2"', '"parity"').replace("num_output: 10", "num_output: 2")
net = net.replace("lr_mult: 1\n", "lr_mult: 0\n", 1).replace("lr_mult: 2\n", "lr_mult: 0\n", 1)  # conv1 is frozen
Path("parity.prototxt").write_text(net)

images, labels = load_digits("train")
test_images, test_labels = load_digits("test")
solver = caffejax.Solver(
    'net: "parity.prototxt" base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: 40 test_iter: 5 '
    'test_interval: 1000 random_seed: 1 snapshot_prefix: "parity"',
    weights=["lenet.caffemodel"],
    data={"data": images, "label": labels % 2},
    test_data={"data": test_images, "label": test_labels % 2},
)
conv1_before = np.array(solver.variables.params["conv1"]["weight"])
solver.step(40)
(scores,) = solver.test()
print(f"accuracy {scores.outputs['accuracy']:.3f}")
print("conv1 unchanged:", bool((solver.variables.params["conv1"]["weight"] == conv1_before).all()))
