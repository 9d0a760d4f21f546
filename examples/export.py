"""Export a net to StableHLO, and run it with JAX where caffejax is not installed.

Run lenet_from_arrays.py first: it writes lenet.prototxt and lenet.caffemodel.
"""

import jax
import numpy as np
from digits import load_digits, require_files

import caffejax
from caffejax.export import make_inference_model, write_stablehlo

require_files("lenet.prototxt", "lenet.caffemodel")

net = caffejax.Net("lenet.prototxt")
write_stablehlo(make_inference_model(net, net.load("lenet.caffemodel"), ["ip2"]), "lenet.stablehlo")

with open("lenet.stablehlo", "rb") as file:
    exported = jax.export.deserialize(bytearray(file.read()))  # from here on caffejax is not needed
images, labels = load_digits("test")
scores = np.asarray(exported.call({"data": images})["ip2"])
print(f"accuracy {(scores.argmax(axis=1) == labels).mean():.3f}, for {exported.platforms}")
