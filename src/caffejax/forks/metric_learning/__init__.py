"""Layers for face recognition: products with angular margins, distances to classes, and losses of distances."""
