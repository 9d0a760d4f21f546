"""Conversion of nets to modules of other frameworks. No other part of caffejax imports this package."""
