"""Layers of FlowNet 2 for optical flow.

A flow (N, 2, height, width) contains the displacement of each pixel to the right (channel 0) and down (channel 1), in
pixels.
"""
