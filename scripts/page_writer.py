"""Pages of docs/ that scripts write, whole or in part, and the check that they are up to date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path


def write_or_check(make: Callable[[], Mapping[Path, str]], description: str | None) -> int:
    """Write pages, or with --check compare them with what is there; return the exit code."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is out of date")
    check_only, pages = parser.parse_args().check, make()
    outdated = [path for path, text in pages.items() if not path.is_file() or path.read_text() != text]
    if check_only:
        print("\n".join(f"{path} is out of date: run {sys.argv[0]}" for path in outdated) or "up to date")
        return 1 if outdated else 0
    for path in outdated:
        path.parent.mkdir(exist_ok=True)
        path.write_text(pages[path])
    return 0


def replace_part(page: str, name: str, content: str) -> str:
    """Return a page with the part between `<!-- made by NAME -->` and `<!-- end -->` replaced.

    Raises:
        ValueError: if the page has no such part.
    """
    start, end = f"<!-- made by {name} -->\n", "<!-- end -->\n"
    head, _, rest = page.partition(start)
    _, found_end, tail = rest.partition(end)
    if not found_end:
        raise ValueError(f"the page has no part '{name}'")
    return f"{head}{start}{content}{end}{tail}"
