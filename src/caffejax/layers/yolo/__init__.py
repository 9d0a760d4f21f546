"""YOLO's layers: Reorg, losses and outputs of YOLOv2 and YOLOv3, and MobileNet-YOLO's segmentation."""
