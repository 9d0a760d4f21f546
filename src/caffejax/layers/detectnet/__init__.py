"""Layers of NVIDIA's DetectNet: augmentation with label grids, lists of boxes from grids, and their scores."""
