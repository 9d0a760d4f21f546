"""Layers of forks' types, a file for each family."""
