"""Record what OpenCV's dnn gives for the nets in this folder: `python record.py` with opencv-python-headless==4.11.*.

Run with 4.11.0.86. The .caffemodel files have random weights. Arrays are in arrays.npz, the rest in recorded.json.
"""

import json
from pathlib import Path

import cv2
import numpy as np

HERE = Path(__file__).parent
SHAPES = {  # of the first net input, as written and larger
    "classes": ([1, 3, 12, 12], [2, 3, 12, 12]),
    "kinds": ([1, 6, 4, 6], [2, 6, 4, 6]),
    "boxes": ([1, 3, 16, 16], [2, 3, 24, 20]),
    "maps": ([1, 3, 8, 12], [1, 3, 9, 9]),
}
SCALING = 1 / 127.5, (127, 100, 120)  # of the images that the models get
IMAGE = np.random.RandomState(0).randint(0, 256, (16, 16, 3), np.uint8)


def numbers(value):
    """Return nested sequences of shapes as lists."""
    return [numbers(v) for v in value] if isinstance(value, tuple | list) else np.asarray(value).tolist()


def record():
    recorded, arrays = {}, {}
    for name, shapes in SHAPES.items():
        net = cv2.dnn.readNetFromCaffe(str(HERE / f"{name}.prototxt"), str(HERE / f"{name}.caffemodel"))
        layers = net.getLayerNames()
        numbers_of_layers = range(len(layers) + 1)
        recorded[name] = {
            "layers": layers,
            "ids": [net.getLayerId(layer) for layer in layers],
            "layer_types": [net.getLayer(i + 1).type for i in range(len(layers))],
            "types": net.getLayerTypes(),
            "unconnected": net.getUnconnectedOutLayers().tolist(),
            "params": [[blob.shape for blob in net.getLayer(i + 1).blobs] for i in range(len(layers))],
            "shapes": [numbers(net.getLayersShapes(shape)[1:]) for shape in shapes],
            "flops": [[net.getFLOPS(i, shape) for i in numbers_of_layers] for shape in shapes],
            "all_flops": [net.getFLOPS(shape) for shape in shapes],
            "memory": [[net.getMemoryConsumption(i, shape) for i in numbers_of_layers] for shape in shapes],
            "all_memory": [net.getMemoryConsumption(shape) for shape in shapes],
        }
        for k, shape in enumerate(shapes):
            values = np.random.RandomState(k).randint(0, 256, shape)
            for layer in layers:  # each in a new net, because later layers overwrite tops of earlier ones in place
                net = cv2.dnn.readNetFromCaffe(str(HERE / f"{name}.prototxt"), str(HERE / f"{name}.caffemodel"))
                if shape[1] <= 4:
                    net.setInput(values.astype(np.uint8), "", *SCALING)
                else:
                    net.setInput(values / np.float32(128), scalefactor=0.5)
                (tops,) = net.forwardAndRetrieve([layer])
                arrays |= {f"{name}/{k}/{layer}/{i}": top for i, top in enumerate(tops)}
    files = {name: (str(HERE / f"{name}.caffemodel"), str(HERE / f"{name}.prototxt")) for name in SHAPES}
    models = recorded["models"] = {}
    for softmax in (False, True):
        model = cv2.dnn.ClassificationModel(*files["classes"])
        model.setInputSize(12, 12).setInputScale(0.01).setInputMean((10, 20, 30)).setInputSwapRB(True)
        model.setOutputNames(["fc"])
        model.setEnableSoftmaxPostProcessing(softmax)
        models[f"classify/{softmax}"] = model.classify(IMAGE[:12, :12])
    for threshold in (0.0, 0.3, 0.5, 0.99):
        model = cv2.dnn.DetectionModel(*files["boxes"])
        model.setInputParams(1 / 127.5, (16, 16), (127, 120, 110), True)
        models[f"detect/{threshold}"] = [numbers(result) for result in model.detect(IMAGE, threshold)]
    model = cv2.dnn.SegmentationModel(*files["maps"])
    model.setInputParams(scale=1 / 127.5, size=(12, 8), mean=127.5)
    models["segment"] = numbers(model.segment(IMAGE[:8, :12]))
    for threshold in (0.5, 0.8):
        keypoints = cv2.dnn.KeypointsModel(*files["maps"])
        keypoints.setInputParams(scale=1 / 127.5, size=(12, 8), mean=127.5)
        models[f"estimate/{threshold}"] = numbers(keypoints.estimate(IMAGE[:8, :12], threshold))
    keypoints.setInputSize((8, 8)).setInputCrop(True)
    arrays["models/crop"] = keypoints.predict(np.ascontiguousarray(IMAGE[:8, :12]))[0]
    (HERE / "recorded.json").write_text(json.dumps(recorded, indent=None, separators=(",", ":")) + "\n")
    np.savez_compressed(HERE / "arrays.npz", **arrays)


if __name__ == "__main__":
    record()
