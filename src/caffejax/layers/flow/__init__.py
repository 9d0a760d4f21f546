"""Layers of FlowNet 2 for optical flow. A flow (N, 2, height, width) is the displacements right and down, in pixels."""
