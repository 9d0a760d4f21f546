"""Data of the forks that estimate poses."""
