"""Videos: lists of them, clips of C3D, and the segments of temporal segment networks."""
