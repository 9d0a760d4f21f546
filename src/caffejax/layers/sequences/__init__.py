"""Layers of forks for sequences: an LSTM of another layout, and labels without an alignment (CTC)."""
