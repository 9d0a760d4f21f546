"""Tests of the layers of forks for flow, and what they share."""
