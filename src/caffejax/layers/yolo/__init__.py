"""Layers of YOLOv2 and YOLOv3: Reorg, losses and detections; and the segmentation layers of MobileNet-YOLO."""
