"""Checks of many model files: whether nets load in each phase, missing files, and whether weights fit.

`check.check_file` checks one file; `check_files` checks many in worker processes.
"""

from .check_report import Finding, PhaseReport, Report, WeightsReport
from .worker_pool import check_files

__all__ = ["Finding", "PhaseReport", "Report", "WeightsReport", "check_files"]
