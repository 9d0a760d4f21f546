"""Layers that find things in images: a file for each type, and what they share about boxes."""
