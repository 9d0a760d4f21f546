"""Layers about regions of interest: where they are proposed, what is taken out of a map for them, how they are trained."""
