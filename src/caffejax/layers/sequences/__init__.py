"""Layers of forks for sequences: caffe-lstm's LSTM, and CTC."""
