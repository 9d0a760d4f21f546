"""Layers about regions of interest: how they are proposed, and labelled, and what is taken out of maps for them."""
