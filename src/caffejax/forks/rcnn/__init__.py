"""Layers of R-CNN's successors, which propose regions of interest (ROIs), make training targets, and pool features."""
