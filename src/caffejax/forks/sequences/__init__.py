"""Layers for sequences in forks: caffe-lstm's LSTM, and connectionist temporal classification (CTC)."""
