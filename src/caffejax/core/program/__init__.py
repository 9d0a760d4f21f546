"""Schedules of a graph's layers, the passes that transform schedules, and the interpreter that runs them."""
