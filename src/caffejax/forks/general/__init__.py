"""Layer types of forks that belong to no one kind of model, and the settings that forks add to BVLC Caffe's types."""
