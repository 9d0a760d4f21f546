"""Nets as modules of other frameworks. No other part of caffejax imports this package."""
