"""Two copies of a net that share their weights learn which digits are alike, by Caffe's ContrastiveLoss."""

import jax
import numpy as np
from digits import digits

import caffejax


def branch(end: str) -> str:
    """One of the copies: params of the same name are the same."""
    return f"""
    layer {{ name: "conv{end}" type: "Convolution" bottom: "data{end}" top: "conv{end}"
             param {{ name: "conv_w" }} param {{ name: "conv_b" }}
             convolution_param {{ num_output: 16 kernel_size: 5 stride: 2 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "relu{end}" type: "ReLU" bottom: "conv{end}" top: "conv{end}" }}
    layer {{ name: "ip{end}" type: "InnerProduct" bottom: "conv{end}" top: "ip{end}"
             param {{ name: "ip_w" }} param {{ name: "ip_b" }}
             inner_product_param {{ num_output: 64 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "relu_ip{end}" type: "ReLU" bottom: "ip{end}" top: "ip{end}" }}
    layer {{ name: "feat{end}" type: "InnerProduct" bottom: "ip{end}" top: "feat{end}"
             param {{ name: "feat_w" }} param {{ name: "feat_b" }}
             inner_product_param {{ num_output: 8 weight_filler {{ type: "xavier" }} }} }}"""


NET = f"""
layer {{ name: "pair" type: "Input" top: "data" top: "data_p" top: "alike"
         input_param {{ shape {{ dim: 64 dim: 1 dim: 28 dim: 28 }} shape {{ dim: 64 dim: 1 dim: 28 dim: 28 }}
                        shape {{ dim: 64 }} }} }}
{branch("")} {branch("_p")}
layer {{ name: "loss" type: "ContrastiveLoss" bottom: "feat" bottom: "feat_p" bottom: "alike" top: "loss" }}
"""
with open("siamese.prototxt", "w") as file:
    file.write(NET)

images, labels = digits("train")


def pairs(epoch):
    """Batches in which about half of the pairs show the same digit."""
    rng = np.random.default_rng(epoch)
    for _ in range(20):
        left = rng.integers(len(images), size=64)
        candidates = rng.integers(len(images), size=(64, 20))
        same = labels[candidates] == labels[left][:, None]
        eligible = np.where(rng.random(64)[:, None] < 0.5, same, ~same)
        right = candidates[np.arange(64), eligible.argmax(axis=1)]
        yield {"data": images[left], "data_p": images[right], "alike": labels[left] == labels[right]}


solver = caffejax.Solver(
    'net: "siamese.prototxt" base_lr: 0.02 momentum: 0.9 lr_policy: "fixed" max_iter: 300 random_seed: 1 '
    'snapshot_prefix: "siamese"',
    data=pairs,
)
solver.step(300)

# the nearest training digit, by distance of the learned features, says what a test digit is
frozen = solver.net.freeze(solver.variables, outputs=["feat"])  # needs one of the two images only
train_features = np.asarray(frozen({"data": images})["feat"])
test_images, test_labels = digits("test")
test_features = np.asarray(frozen({"data": test_images})["feat"])
nearest = ((test_features[:, None] - train_features[None]) ** 2).sum(axis=2).argmin(axis=1)
print(f"nearest neighbour is right: {(labels[nearest] == test_labels).mean():.3f}")
print("one array for both copies:", len(jax.tree.leaves(solver.variables.params)), "arrays")
