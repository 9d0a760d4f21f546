"""Layers of nets that label every pixel: DeepLab, PSPNet, SegNet, DeconvNet and CRF-RNN."""
