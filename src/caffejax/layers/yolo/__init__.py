"""YOLO's layers: Reorg, the losses of YOLOv2 and YOLOv3, what reads their maps, and MobileNet-YOLO's segmentation."""
