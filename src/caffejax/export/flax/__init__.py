"""A net as flax source, as one would write it by hand, that runs and trains without caffejax."""

from .writing import write_flax

__all__ = ["write_flax"]
