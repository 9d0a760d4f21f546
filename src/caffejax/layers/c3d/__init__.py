"""Layers of C3D and video-caffe for videos: arrays (N, C, length, height, width), where length counts frames."""
