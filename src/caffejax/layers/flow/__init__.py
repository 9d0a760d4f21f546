"""Layers of FlowNet 2, for the motion between two images. A flow is (N, 2, height, width): how far right and down."""
