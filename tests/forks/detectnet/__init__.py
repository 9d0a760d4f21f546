"""Tests of the layers of forks for detectnet, and what they share."""
