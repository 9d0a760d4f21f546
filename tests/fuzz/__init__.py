"""A fuzzer: files of every format that caffejax reads, damaged by seed, read in a process that may die of them.

`formats` has one harness per format, `mutators` what damages them; `scripts/fuzz.py` runs them for as long as wanted,
`scripts/shrink_fuzz_case.py` shrinks what they find, and `cases` keeps it.
"""
