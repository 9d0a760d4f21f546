"""Tests of the layers of forks for detection, and what they share."""
