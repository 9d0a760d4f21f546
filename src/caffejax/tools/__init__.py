"""Tools around nets: summaries, drawings, plans, checks, comparison, prediction, logs, metrics, timing."""
