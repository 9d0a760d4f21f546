"""Tests of the layers of forks for general, and what they share."""
