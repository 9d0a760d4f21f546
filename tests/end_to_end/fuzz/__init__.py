"""A fuzzer: damage files of every format that caffejax reads by seed, and read them in a process that may crash.

`formats` has one harness per format, `mutators` what damages them; `scripts/fuzz.py` runs them for as long as wanted,
`scripts/shrink_fuzz_case.py` shrinks what they find, and `cases` keeps it.
"""
