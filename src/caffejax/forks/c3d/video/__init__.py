"""The VideoData layers: lists of videos, C3D's clips, and the segments of temporal segment networks."""
