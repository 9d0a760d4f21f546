"""Layers of MS-CNN and Cascade R-CNN (zhaoweicai's forks), which propose, refine, sample and select boxes."""
