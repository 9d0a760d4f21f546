"""NVIDIA's DetectNet: its augmentation and its grids of labels, and the lists of boxes that it is scored by."""
