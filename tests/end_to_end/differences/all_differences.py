"""All declared differences from Caffe, by section of docs/differences.md."""

import blobs_and_params
import data_and_solvers
import gradients_and_losses
import in_place_layers
from difference import Difference

SECTIONS: dict[str, tuple[str, list[Difference]]] = {
    "Layers in place": (
        "BVLC Caffe lets these layers work in place, though its code then reads what it has overwritten. Here a layer "
        "computes in place what it computes elsewhere.",
        in_place_layers.DIFFERENCES,
    ),
    "Gradients and losses": (
        "Errors of Caffe and its forks that are not copied, and places where they leave open what comes out.",
        gradients_and_losses.DIFFERENCES,
    ),
    "Blobs and params": (
        "What scripts find in the blobs of Caffe's Python interface, and what nets and passes share.",
        blobs_and_params.DIFFERENCES,
    ),
    "Random numbers, data and solvers": ("Differences outside of the layers.", data_and_solvers.DIFFERENCES),
}
