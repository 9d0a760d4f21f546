"""Layers of C3D over five axes: number, channels, length, height, width. A length is of frames in time."""
