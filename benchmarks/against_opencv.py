"""caffejax and OpenCV's importer of Caffe models on the same nets, at batch 1.

    python -m venv opencv && opencv/bin/pip install "numpy<2" opencv-python-headless==4.6.0.66
    python benchmarks/against_opencv.py --python opencv/bin/python

OpenCV reads a deploy.prototxt and a .caffemodel that are written here, in an interpreter of its own: it wants an older
NumPy. The two run in turn with the same number of threads, and their outputs must agree. Prints milliseconds (medians)
and the ratio OpenCV / caffejax (median over rounds; more than 1: caffejax is faster).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
from against_torch import Competitor, competitor, in_turn
from competitor import CONFIGS, random_inputs, variables_of

from caffejax.checkpoints.loading import save_weights
from caffejax.net import Net
from caffejax.schema import read_net

NETS = ("squeezenet", "mobilenet", "caffenet", "googlenet", "resnet50")


def write_files(name: str, folder: Path) -> list[str]:
    """Write the net as its users would give it to OpenCV: definition, weights, and data to run on."""
    model = CONFIGS / name / "train_val.prototxt"
    net = Net(model)
    kept = {layer.key for layer in net.graph.layers}
    deploy = read_net(model)
    layers = [layer for layer in deploy.layer if layer.name in kept]
    del deploy.layer[:]
    for layer in layers:
        layer.ClearField("include")
        if layer.type == "Input":
            layer.input_param.shape[0].dim[0] = 1
    deploy.layer.extend(layers)
    paths = [folder / "deploy.prototxt", folder / "weights.caffemodel", folder / "data.npy"]
    paths[0].write_text(str(deploy))
    save_weights(paths[1], net.graph, variables_of(net))
    np.save(paths[2], random_inputs(net, 1)["data"])
    return list(map(str, paths))


def compare(name: str, options: argparse.Namespace) -> str:
    """Measure a net; return a row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        files, threads = write_files(name, Path(folder)), str(options.threads)
        ours = competitor(name, "forward 1", "fast", options.threads)
        theirs = Competitor([options.python, "opencv_net.py", *files, threads], options.threads)
        try:
            np.testing.assert_allclose(theirs.result, ours.result, rtol=5e-3, atol=1e-5, err_msg=name)
            times = in_turn({"ours": ours, "theirs": theirs}, options.rounds)
        finally:
            ours.process.kill()
            theirs.process.kill()
    medians = [statistics.median(column) for column in times.values()]
    ratio = statistics.median(b / a for a, b in zip(times["ours"], times["theirs"], strict=True))
    return f"| {name} | {medians[0]:.2f} | {medians[1]:.2f} | {ratio:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--python", type=os.path.abspath, default=sys.executable, help="the interpreter that has OpenCV"
    )
    parser.add_argument("--nets", type=lambda text: text.split(","), default=NETS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    print("| net | caffejax | OpenCV | ratio |\n|---|---|---|---|")
    for name in options.nets:
        print(compare(name, options), flush=True)


if __name__ == "__main__":
    main()
