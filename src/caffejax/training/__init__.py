"""Training: lr policies, update rules as optax transformations, and the loop round them."""

from ..options import TrainConfig
from .evaluate import Evaluator, Scores
from .pace import Pace, Stopwatch
from .policies import rate_schedule
from .report import Display
from .rules import RULES, rule
from .solver import Callback, Solver
from .state import TrainState, make_step
from .transforms import caffe_optimizer

__all__ = [
    "RULES",
    "Callback",
    "Display",
    "Evaluator",
    "Pace",
    "Scores",
    "Solver",
    "Stopwatch",
    "TrainConfig",
    "TrainState",
    "caffe_optimizer",
    "make_step",
    "rate_schedule",
    "rule",
]
