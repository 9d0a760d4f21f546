"""Layers of YOLOv2, YOLOv3 and MobileNet-YOLO, which reorder maps, compute losses and select detections."""
