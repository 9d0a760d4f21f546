"""Tests of the layers of forks for rcnn, and what they share."""
