"""Tests of the layers of forks for yolo, and what they share."""
