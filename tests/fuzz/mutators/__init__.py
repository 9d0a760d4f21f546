"""Mutators: of any bytes, or of a format's elements, keeping the rest valid."""
