"""Predictions of a net for images: preprocessing, and results as text, JSON and drawings."""
