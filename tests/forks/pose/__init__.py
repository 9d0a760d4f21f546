"""Tests of the layers of forks for pose, and what they share."""
