"""Predictions of a net for pictures: preprocessing, and results as text, JSON and drawings."""
