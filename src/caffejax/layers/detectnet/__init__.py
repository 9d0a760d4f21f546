"""Layers of NVIDIA's DetectNet: augmentation with label grids, boxes decoded from grids, and their evaluation."""
