"""What the scripts that write a page of docs/ have in common: writing it, or checking that it is up to date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path


def write_or_check(path: Path, page: Callable[[], str], description: str | None) -> int:
    """Write a page, or with --check compare it with what is there; return the exit code."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is out of date")
    if parser.parse_args().check:
        up_to_date = path.is_file() and path.read_text() == page()
        print("up to date" if up_to_date else f"{path} is out of date: run {sys.argv[0]}")
        return 0 if up_to_date else 1
    path.parent.mkdir(exist_ok=True)
    path.write_text(page())
    return 0
