"""Training of nets: the training loop, learning-rate policies, update rules and snapshots."""

from ...base.config import TrainConfig
from .evaluate import Evaluator, Scores
from .lr_schedules import rate_schedule
from .reporting import Display, Pace, Stopwatch
from .solver import Callback, Solver
from .train_step import TrainState, make_step
from .update_rules import RULES, caffe_optimizer, rule

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
