"""Train Caffe's LeNet on NumPy arrays, test it on others, save its weights."""

import re

from digits import CONFIGS, load_digits

import caffejax

# the net of configs/digits with Input layers in the place of its databases
net = (CONFIGS / "digits" / "lenet_train_test.prototxt").read_text()
net = re.sub(r'layer \{\n  name: "mnist".*?\n\}\n', "", net, flags=re.DOTALL)
inputs = """
layer { name: "data" type: "Input" top: "data" top: "label"
        input_param { shape { dim: 64 dim: 1 dim: 28 dim: 28 } shape { dim: 64 } } }
"""
with open("lenet.prototxt", "w") as file:
    file.write(inputs + net)

images, labels = load_digits("train")
test_images, test_labels = load_digits("test")
solver = caffejax.Solver(
    'net: "lenet.prototxt" base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: 300 test_iter: 5 '
    'test_interval: 1000 random_seed: 1 snapshot_prefix: "lenet"',
    data={"data": images, "label": labels},
    test_data={"data": test_images, "label": test_labels},
)
solver.step(300)
(scores,) = solver.test()
print(f"accuracy {scores.outputs['accuracy']:.3f}")
caffejax.save_weights("lenet.caffemodel", solver.net.graph, solver.variables)
