"""Damage files of a format as scripts/fuzz.py does, led by what of caffejax's code they reach: needs atheris.

python scripts/fuzz_guided.py npz -max_total_time=600

What follows the format goes to libFuzzer. It ends with the first finding, and writes its input; what has crashed, too.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
import tempfile
from pathlib import Path
from random import Random

import atheris

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "end_to_end"))

with atheris.instrument_imports(include=["caffejax"]):
    from fuzz.harness import Files, get_intact_sets, load_harness, write_files
    from fuzz.run_case import run_case

    # imports the rest
    run_case(sys.argv[1], None, get_intact_sets(sys.argv[1])[0], Path(tempfile.mkdtemp()) / "intact")


def encode(files: Files) -> bytes:
    """Make one input of a case's files."""
    return json.dumps({name: content.decode("latin-1") for name, content in files.items()}).encode()


def decode(data: bytes) -> Files:
    """Make files of an input again; none of what is no input."""
    try:
        return {name: content.encode("latin-1") for name, content in json.loads(data).items()}
    except (ValueError, AttributeError):
        return {}


def main() -> None:
    format, *flags = sys.argv[1:]
    folder = Path(tempfile.mkdtemp())
    numbers = itertools.count()
    corpus = {str(i): encode(files) for i, files in enumerate(get_intact_sets(format))}
    write_files(folder / "corpus", corpus)

    def read(data: bytes) -> None:
        case_folder = folder / str(next(numbers))
        files = decode(data)
        if files:
            outcome = run_case(format, None, files, case_folder)
            shutil.rmtree(case_folder, ignore_errors=True)
            if outcome.is_finding:
                write_files(Path("fuzz-findings") / format / "guided" / "files@0", files)
                raise RuntimeError(f"{outcome.signature}\n{outcome.text}")

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        draw, change = Random(seed), load_harness(format).mutate
        try:
            return encode(change(draw, decode(data)))
        except Exception:  # damaged too far to be taken apart again
            return encode(change(draw, draw.choice(get_intact_sets(format))))

    size = f"-max_len={4 * max(map(len, corpus.values()))}"
    atheris.Setup([sys.argv[0], size, *flags, str(folder / "corpus")], read, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
