"""Errors, configuration values, paths, atomic files and tables, for every room. Imports nothing of the package."""
