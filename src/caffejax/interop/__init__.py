"""Nets in other frameworks' clothes. Nothing else in caffejax imports this."""
