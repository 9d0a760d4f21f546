"""Mutators of arbitrary bytes, and of single elements of a format that keep the rest valid."""
