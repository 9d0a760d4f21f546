"""Tests of the layers of forks for metric learning, and what they share."""
