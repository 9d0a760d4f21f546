"""Tests of the layers of forks for sequences, and what they share."""
