"""Check docstrings, comments and pages for turns of phrase that CONTRIBUTING.md bans.

python scripts/check_words.py           prints the share of texts with such a phrase; fails if one is above its limit
python scripts/check_words.py --list    also prints each place
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BANNED = {
    "a sentence that begins with What, Whether, Of or Those": r"(?:^|[.:;] )(?:What|Whether|Those|Of(?! course)) ",
    "'what' as a noun": (
        r"\b(?:of|by|from|to|with|as|in|for|than|and|or|is|are) what (?!is (?:this|it)\b|to do\b|happens\b)"
    ),
    "'is no', 'is none'": r"\b(?:is|are) (?:no|none)\b",
    "'that of', 'those of': repeat the noun": r"\b(?:that|those) of\b",
    "'lies': is stored, is placed": r"\blies?\b(?! (?:in|between) (?:the )?(?:range|interval|\[))",
    "'of its own'": r"\bof (?:its|their|his|one's|the user's|yours|a user's) own\b",
    "'so many', 'as many'": r"\b(?:so|as) many\b",
    "'unless given'": r"\bunless given\b",
    "'goes on': continues": r"\bgo(?:es)? on\b",
    "'of which', 'of whom'": r"\bof (?:which|whom)\b",
    "a word of another language's grammar": r"\b(?:anew|likewise|nobody|somebody|but for|in place of|will do)\b",
}
LIMITS = {"docstrings": 2.5, "comments": 1.5, "lines of pages": 1.5}  # in percent


def iterate_docstrings() -> Iterator[tuple[Path, int, str]]:
    for path in _sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                yield path, getattr(node, "lineno", 1), text


def iterate_comments() -> Iterator[tuple[Path, int, str]]:
    for path in _sources():
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            if token.type == tokenize.COMMENT:
                yield path, token.start[0], token.string.lstrip("# ")


def iterate_page_lines() -> Iterator[tuple[Path, int, str]]:
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        is_code = False
        for line_number, line in enumerate(path.read_text().splitlines(), 1):
            is_code ^= line.lstrip().startswith("```")
            if not is_code and line.strip() and not line.startswith("    "):
                yield path, line_number, line


def _sources() -> list[Path]:
    return [path for path in sorted((ROOT / "src").rglob("*.py")) if not path.stem.endswith("_pb2")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print each place")
    options = parser.parse_args()
    failures = []
    texts = {"docstrings": iterate_docstrings(), "comments": iterate_comments(), "lines of pages": iterate_page_lines()}
    for text_kind, texts_with_positions in texts.items():
        num_texts = num_matches = 0
        for path, line, text in texts_with_positions:
            num_texts += 1
            phrases = [phrase for phrase, pattern in BANNED.items() if re.search(pattern, text)]
            num_matches += bool(phrases)
            if phrases and options.list:
                print(f"{path.relative_to(ROOT)}:{line}: {'; '.join(phrases)}: {' '.join(text.split())[:100]}")
        percentage = 100 * num_matches / max(1, num_texts)
        limit = LIMITS[text_kind]
        print(f"{text_kind}: {num_matches} of {num_texts} with a banned phrase ({percentage:.1f} %, limit {limit} %)")
        if percentage > limit:
            failures.append(text_kind)
    if failures:
        sys.exit(f"too many banned phrases in {', '.join(failures)}; --list shows them")


if __name__ == "__main__":
    main()
