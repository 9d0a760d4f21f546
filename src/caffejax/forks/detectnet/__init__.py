"""Layers of NVIDIA's DetectNet: augmentation with label grids, decoding of boxes from grids, and their evaluation."""
