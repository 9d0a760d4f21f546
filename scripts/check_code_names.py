"""Check that the names of code in the pages for developers exist: docs/development/*.md and CONTRIBUTING.md.

python scripts/check_code_names.py           prints each name that does not exist; fails if there are any

A name is what stands between backticks. A path must exist in the repository, in src/caffejax or in one of its rooms. A
name with dots must be in the code as it is written: `Class.member`, `module.function`. Any other name must be in the
code outside of comments: as an identifier, a flag, a field of a message or a string. `OTHERS` has names of other
projects; those that start with the name of an imported package, as in `jax.jit`, are not checked.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (*sorted((ROOT / "docs" / "development").glob("*.md")), ROOT / "CONTRIBUTING.md")
SOURCES = ("src", "scripts", "benchmarks", "tests", "examples", "shim", ".ci", "pyproject.toml", "setup.py")
SUFFIXES = ("py", "pyi", "cc", "h", "md", "json", "toml", "proto", "prototxt", "js")

OTHERS = {  # names that the pages mention and that are not ours
    *(
        ".venv/bin/pip",
        ".venv/bin/ruff",
        ".venv/bin/mypy",
        ".venv/bin/pytest",
        ".venv/bin/clang-format",
        "grep",
        "posix_memalign",
    ),
    *("--only-binary", "--no-index", "--hypothesis-profile", "OCL_ICD_FILENAMES"),
    *("estimated_cycles", "fpmath_mode", "jit_uni", "shihenw"),  # of the TPU compiler, oneDNN and a public net
    *("wheels/*.whl", "dist/*", "roofline.json", "fuzz-findings/lmdb/123"),  # that commands write
    *("has_", "of_one"),  # about words
}

_PATH = re.compile(rf"[\w.*<>-]*/[\w./*<>-]*|[\w*-]+\.(?:{'|'.join(SUFFIXES)})")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_NAME = re.compile(r"[A-Za-z_]\w*")
_FLAG = re.compile(r"--([a-z][\w-]*)")


@dataclass
class Code:
    """The names in the sources of a repository.

    Attributes:
        root: the repository.
        files: the paths of all files, relative to the repository.
        words: the identifiers, and the strings that consist of one word, without comments and docstrings.
        members: the methods and attributes of classes, and their bases, by the name of the class.
        functions: the modules of top-level functions and classes, by name: stems of files and folders.
        imported: the names by which other packages are imported, such as "np".
    """

    root: Path
    files: set[str]
    words: set[str] = field(default_factory=set)
    members: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    bases: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    functions: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    imported: set[str] = field(default_factory=set)


def read_code(root: Path, files: Sequence[str]) -> Code:
    """Return the names in the files of a repository that are sources."""
    code = Code(root, set(files))
    for name in files:
        if not name.startswith(SOURCES):
            continue
        code.words.update(part for parts in Path(name).parts for part in re.findall(r"\w+", parts))
        path = root / name
        if path.suffix in (".py", ".pyi"):
            _add_python(code, path)
        elif path.suffix in (".cc", ".h", ".proto", ".js", ".toml", ".c", ".sh") or name.startswith(".ci"):
            text = re.sub(r"(?://|#).*|(?s:/\*.*?\*/)", " ", path.read_text())
            code.words.update(_NAME.findall(text))
    return code


def _add_python(code: Code, path: Path) -> None:
    text = path.read_text()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            code.words.add(token.string)
    tree = ast.parse(text)
    modules = {path.stem, *path.relative_to(code.root).parts[:-1]}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            code.functions[node.name] |= modules
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef():
                _add_class(code, node)
            case ast.Import(names=aliases):
                code.imported.update((alias.asname or alias.name).partition(".")[0] for alias in aliases)
            case ast.ImportFrom(names=aliases, level=0):
                code.imported.update(alias.asname or alias.name for alias in aliases if not _is_ours(node.module))
            case ast.Constant(value=str(value)):
                is_name = _NAME.fullmatch(value) or _DOTTED.fullmatch(value)  # such as a group of entry points
                code.words.update([value] if is_name else _FLAG.findall(value))
    code.imported.discard("caffejax")


def _is_ours(module: str | None) -> bool:
    return (module or "").partition(".")[0] in ("caffejax", "caffe")


def _add_class(code: Code, node: ast.ClassDef) -> None:
    members = code.members[node.name]
    code.bases[node.name].update(base.id for base in node.bases if isinstance(base, ast.Name))
    for part in ast.walk(node):
        match part:
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                members.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name) | ast.Assign(targets=[ast.Name(id=name)]):
                members.add(name)


def find_missing_names(text: str, code: Code) -> Iterator[tuple[int, str]]:
    """Yield line and name of each name of code in a page that the code does not have."""
    is_fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        is_fenced ^= line.lstrip().startswith("```")
        if is_fenced or line.startswith("```"):
            continue
        if line.startswith("    ") and not re.match(r" +(?:[-*|]|\d+\.) ", line):  # a block of commands, or a paragraph
            spans = [line] if not line.count("`") else re.findall(r"`([^`]+)`", line)
        else:
            spans = re.findall(r"`([^`]+)`", line)
        yield from ((number, name) for span in spans for name in _split(span) if not _exists(name, code))


def _split(span: str) -> list[str]:
    """Return the names in what stands between backticks, or in a line of a command."""
    if " " not in span:
        return [span.removesuffix("()").removesuffix("=")]
    return [word for word in re.split(r"[\s'\"=,;:]+", span) if _PATH.fullmatch(word) or _FLAG.fullmatch(word)]


def _exists(name: str, code: Code) -> bool:
    if name in OTHERS:
        return True
    name = re.sub(r"\(.*\)$", "", name)
    if match := _FLAG.match(name):
        return match[1] in code.words or match[1].replace("-", "_") in code.words
    if _PATH.fullmatch(name):
        return _path_exists(name, code)
    if _DOTTED.fullmatch(name):
        return _dotted_name_exists(name.split("."), code)
    return name in code.words if _NAME.fullmatch(name) else True  # else a piece of code or of another language


def _path_exists(name: str, code: Code) -> bool:
    pattern = re.sub(r"<\w+>", "*", name).rstrip("/")
    if pattern.startswith("*."):
        return any(file.endswith(pattern[1:]) for file in code.files)
    rooms = (path for path in (code.root / "src" / "caffejax").iterdir() if path.is_dir())
    folders = (code.root, code.root / "src" / "caffejax", *rooms)
    return name.startswith(("/", "~")) or any(any(folder.glob(pattern)) for folder in folders)


def _dotted_name_exists(parts: Sequence[str], code: Code) -> bool:
    first, *rest = parts
    if first in code.imported or ".".join(parts) in code.words:
        return True
    if first == "caffejax":
        return _full_name_exists(parts, code)
    if first in code.members:
        return rest[0] in _list_members(first, code) and code.words.issuperset(rest)
    last, owner = parts[-1], parts[-2]
    if last in code.functions and not any(last in members for members in code.members.values()):
        return owner in code.functions[last] or owner in code.functions
    return code.words.issuperset(parts)


def _full_name_exists(parts: Sequence[str], code: Code) -> bool:
    """Return whether the first parts are a module, of which the file names the next part."""
    for depth in range(len(parts), 0, -1):
        start = f"src/{'/'.join(parts[:depth])}"
        if files := code.files.intersection({f"{start}.py", f"{start}/__init__.py", f"{start}/__init__.pyi"}):
            names = {name for file in files for name in _list_bound_names(ast.parse((code.root / file).read_text()))}
            return depth == len(parts) or (parts[depth] in names and code.words.issuperset(parts))
    return False


def _list_bound_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias(name=name, asname=asname):
                yield asname or name


def _list_members(name: str, code: Code) -> set[str]:
    return code.members[name].union(*(_list_members(base, code) for base in code.bases[name] if base in code.members))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    files = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    code = read_code(ROOT, [name for name in files if (ROOT / name).is_file()])
    problems = [
        f"{page.relative_to(ROOT)}:{line}: there is no `{name}`"
        for page in PAGES
        for line, name in find_missing_names(page.read_text(), code)
    ]
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
