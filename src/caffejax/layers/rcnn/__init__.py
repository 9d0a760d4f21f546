"""Layers of R-CNN's successors: proposals of regions of interest, their targets, and pooling of features."""
