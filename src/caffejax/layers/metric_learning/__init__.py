"""Layers for recognising faces: products and distances by angle, and losses over the distances to classes."""
