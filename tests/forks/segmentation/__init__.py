"""Tests of the layers of forks for segmentation, and what they share."""
