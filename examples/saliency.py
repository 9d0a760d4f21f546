"""Show which pixels a classification depends on: the gradient of the class score with respect to the image.

Run lenet_from_arrays.py first: it writes lenet.prototxt and lenet.caffemodel.
"""

import jax
import numpy as np
from digits import load_digits, require_files

import caffejax

require_files("lenet.prototxt", "lenet.caffemodel")

net = caffejax.Net("lenet.prototxt", "TEST")
params, state = net.load("lenet.caffemodel")
images, labels = load_digits("test")


def compute_score(image, label):
    """Return the score of a class for one image (1, 28, 28)."""
    blobs, _ = net.apply(params, state, {"data": image[None], "label": label[None]}, blobs=["ip2"])
    return blobs["ip2"][0, label]


saliency = np.abs(jax.vmap(jax.grad(compute_score))(images[:32], labels[:32]))  # of 32 images at once
ink = images[:32] > 0.5
print("saliency", saliency.shape)
print(f"on the strokes {saliency[ink].mean() / saliency[~ink].mean():.1f} times that of the paper")
for row in saliency[0, 0, 4:24:2, ::2]:
    print("".join(" .:*#"[min(4, int(9 * x / saliency[0].max()))] for x in row))
