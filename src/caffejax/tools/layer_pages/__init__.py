"""Descriptions of layer types, for pages and commands."""
