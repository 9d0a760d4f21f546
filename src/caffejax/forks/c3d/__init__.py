"""Layers of C3D and video-caffe for videos, which are arrays (N, C, length, height, width); length counts frames."""
