"""Training: lr policies, update rules as optax transformations, and the loop round them."""

from .evaluate import Evaluator, Scores
from .policies import rate_schedule
from .rules import RULES, rule
from .solver import Solver
from .state import TrainState, make_step
from .transforms import caffe_optimizer

__all__ = [
    "RULES",
    "Evaluator",
    "Scores",
    "Solver",
    "TrainState",
    "caffe_optimizer",
    "make_step",
    "rate_schedule",
    "rule",
]
