"""Tests of the layers of forks for mscnn, and what they share."""
