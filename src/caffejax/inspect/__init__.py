"""What looks into a net: memory, timing, counting, taps, debug info, the search for a culprit, features."""
