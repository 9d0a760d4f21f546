"""Layers of zhaoweicai's forks, MS-CNN and Cascade R-CNN: boxes proposed, refined, sampled for training, detected."""
