"""Layers of YOLOv2 and YOLOv3, which reorder maps, compute losses and select detections, and of MobileNet-YOLO."""
