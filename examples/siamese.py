"""Two copies of a net that share their weights learn which digits are alike, by Caffe's ContrastiveLoss."""

import jax
import numpy as np
from digits import load_digits

import caffejax


def make_branch(suffix: str) -> str:
    """Return one of the two branches; params of the same name are shared."""
    return f"""
    layer {{ name: "conv{suffix}" type: "Convolution" bottom: "data{suffix}" top: "conv{suffix}"
             param {{ name: "conv_w" }} param {{ name: "conv_b" }}
             convolution_param {{ num_output: 16 kernel_size: 5 stride: 2 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "relu{suffix}" type: "ReLU" bottom: "conv{suffix}" top: "conv{suffix}" }}
    layer {{ name: "ip{suffix}" type: "InnerProduct" bottom: "conv{suffix}" top: "ip{suffix}"
             param {{ name: "ip_w" }} param {{ name: "ip_b" }}
             inner_product_param {{ num_output: 64 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "relu_ip{suffix}" type: "ReLU" bottom: "ip{suffix}" top: "ip{suffix}" }}
    layer {{ name: "feat{suffix}" type: "InnerProduct" bottom: "ip{suffix}" top: "feat{suffix}"
             param {{ name: "feat_w" }} param {{ name: "feat_b" }}
             inner_product_param {{ num_output: 8 weight_filler {{ type: "xavier" }} }} }}"""


NET = f"""
layer {{ name: "pair" type: "Input" top: "data" top: "data_p" top: "alike"
         input_param {{ shape {{ dim: 64 dim: 1 dim: 28 dim: 28 }} shape {{ dim: 64 dim: 1 dim: 28 dim: 28 }}
                        shape {{ dim: 64 }} }} }}
{make_branch("")} {make_branch("_p")}
layer {{ name: "loss" type: "ContrastiveLoss" bottom: "feat" bottom: "feat_p" bottom: "alike" top: "loss" }}
"""
with open("siamese.prototxt", "w") as file:
    file.write(NET)

images, labels = load_digits("train")


def draw_pairs(epoch):
    """Yield batches in which about half of the pairs show the same digit."""
    rng = np.random.default_rng(epoch)
    for _ in range(20):
        left = rng.integers(len(images), size=64)
        candidates = rng.integers(len(images), size=(64, 20))
        is_same_digit = labels[candidates] == labels[left][:, None]
        is_eligible = np.where(rng.random(64)[:, None] < 0.5, is_same_digit, ~is_same_digit)
        right = candidates[np.arange(64), is_eligible.argmax(axis=1)]
        yield {"data": images[left], "data_p": images[right], "alike": labels[left] == labels[right]}


solver = caffejax.Solver(
    'net: "siamese.prototxt" base_lr: 0.02 momentum: 0.9 lr_policy: "fixed" max_iter: 300 random_seed: 1 '
    'snapshot_prefix: "siamese"',
    data=draw_pairs,
)
solver.step(300)

# the nearest training digit, by distance of the learned features, says what a test digit is
frozen = solver.net.freeze(solver.variables, outputs=["feat"])  # needs one of the two images only
train_features = np.asarray(frozen({"data": images})["feat"])
test_images, test_labels = load_digits("test")
test_features = np.asarray(frozen({"data": test_images})["feat"])
nearest = ((test_features[:, None] - train_features[None]) ** 2).sum(axis=2).argmin(axis=1)
print(f"nearest neighbour is right: {(labels[nearest] == test_labels).mean():.3f}")
print("one array for both copies:", len(jax.tree.leaves(solver.variables.params)), "arrays")
