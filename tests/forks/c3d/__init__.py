"""Tests of the layers of forks for c3d, and what they share."""
