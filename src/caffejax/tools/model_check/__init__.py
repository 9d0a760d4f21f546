"""Checks of many model files: whether nets load in each phase, missing files, and whether weights fit.

`check.check_file` checks one file; `check_files` checks many in worker processes.
"""

from .check import check_files
from .check_report import Finding, PhaseReport, Report, WeightsReport

__all__ = ["Finding", "PhaseReport", "Report", "WeightsReport", "check_files"]
