"""Layers of R-CNN's successors: proposals of regions of interest (ROIs), training targets, and pooling of features."""
