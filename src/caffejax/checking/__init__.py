"""Which of the models that people have load: in which phases, what is missing, whether weights fit.

`check.check_file` looks at one; `check_files` at many, each in a process.
"""

from .check_report import Finding, PhaseReport, Report, WeightsReport
from .worker_pool import check_files

__all__ = ["Finding", "PhaseReport", "Report", "WeightsReport", "check_files"]
