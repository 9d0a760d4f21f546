"""Test cases of forks' layer types, one file for each family."""
