"""Find the images whose features in a trained net are nearest to the features of an image.

Run lenet_from_arrays.py first: it writes lenet.prototxt and lenet.caffemodel.
"""

import numpy as np
from digits import load_digits, require_files

import caffejax

require_files("lenet.prototxt", "lenet.caffemodel")

net = caffejax.Net("lenet.prototxt", "TEST")
frozen = net.freeze(net.load("lenet.caffemodel"), outputs=["ip1"])  # a function of the inputs alone

images, labels = load_digits("train")
test_images, test_labels = load_digits("test")
train_features, test_features = (np.asarray(frozen({"data": x})["ip1"]) for x in (images, test_images))

train_features, test_features = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (train_features, test_features))
nearest = np.argsort(-test_features @ train_features.T, axis=1)[:, :5]
for i in range(3):
    print(f"a {test_labels[i]} is nearest to", *labels[nearest[i]])
print(f"all five are the same digit: {(labels[nearest] == test_labels[:, None]).all(axis=1).mean():.2f}")
