"""The peer of against_opencv.py: a Caffe net in OpenCV. Its interpreter needs NumPy and OpenCV, nothing of ours.

    python benchmarks/opencv_net.py DEPLOY.prototxt WEIGHTS.caffemodel INPUT.npy THREADS

It answers as competitor.py does.
"""

from __future__ import annotations

import json
import sys
import time

import cv2  # type: ignore[import-not-found]
import numpy as np


def main() -> None:
    model, weights, data, threads = sys.argv[1:]
    cv2.setNumThreads(int(threads))
    net, x = cv2.dnn.readNetFromCaffe(model, weights), np.load(data)

    def run() -> float:
        start = time.perf_counter()
        net.setInput(x)
        net.forward()
        return (time.perf_counter() - start) * 1000

    first = run() / 1000
    print(json.dumps({"first": first, "result": net.forward().ravel()[:100].astype(float).tolist()}), flush=True)
    for line in sys.stdin:
        if not line.startswith("run"):
            return
        print(json.dumps([run() for _ in range(int(line.split()[1]))]), flush=True)


if __name__ == "__main__":
    main()
