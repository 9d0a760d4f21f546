"""NVIDIA's DetectNet: its augmentation and label grids, and the box lists that score it."""
