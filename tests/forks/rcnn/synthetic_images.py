"""Synthetic images of rectangles and discs, with their boxes."""

import numpy as np

SIZE = 96


def draw_image(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw a rectangle (class 1) and a disc (class 2) that do not overlap; return the image and their boxes."""
    data = random.normal(scale=0.05, size=(3, SIZE, SIZE)).astype(np.float32)
    y, x = np.mgrid[:SIZE, :SIZE]
    boxes = []
    for label, column_half in zip((1, 2), random.permutation(2), strict=True):  # one in each half
        width, height = random.integers(20, 41, 2)
        height = height if label == 1 else width
        left = random.integers(2, SIZE // 2 - width - 1 if width < SIZE // 2 - 3 else 3) + column_half * SIZE // 2
        top = random.integers(2, SIZE - height - 1)
        box = left, top, left + width - 1, top + height - 1
        center = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        is_inside = (x >= box[0]) & (x <= box[2]) & (y >= box[1]) & (y <= box[3])
        if label == 2:
            is_inside = (x - center[0]) ** 2 + (y - center[1]) ** 2 <= (width / 2) ** 2
        data[:, is_inside] = random.uniform(0.4, 1.0, (3, 1))
        boxes.append((*box, label))
    return data[None], np.asarray(boxes, np.float32)
