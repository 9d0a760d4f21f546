"""Layers of FlowNet 2 for optical flow. A flow is (N, 2, height, width): displacements right and down, in pixels."""
