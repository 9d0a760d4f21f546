"""Tests of the layers of forks for robotics, and what they share."""
