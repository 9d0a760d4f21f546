"""Layers of MS-CNN and Cascade R-CNN (zhaoweicai's forks): box proposals, refinement, sampling, losses, detections."""
