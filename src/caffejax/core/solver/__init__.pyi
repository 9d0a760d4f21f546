# The package's names: type checkers read them here, and lazy_loader. `as` has type checkers take a name for public.

from .evaluate import Evaluator as Evaluator
from .lr_schedules import rate_schedule as rate_schedule
from .optax_interface import lr_schedule as lr_schedule
from .optax_interface import optimizer as optimizer
from .reporting import Display as Display
from .reporting import Pace as Pace
from .reporting import Scores as Scores
from .reporting import Stopwatch as Stopwatch
from .solver import Callback as Callback
from .solver import Solver as Solver
from .train_step import TrainState as TrainState
from .train_step import iteration_key as iteration_key
from .train_step import make_step as make_step
from .update_rules import RULES as RULES
