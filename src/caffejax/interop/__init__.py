"""Nets as modules of other frameworks. Nothing else in caffejax imports this."""
