"""One of two processes that make solvers together: `same_job_worker.py HOST:PORT ID CASES OUT`.

The file CASES has a pickled dict, with the keywords of `caffejax.Solver` for each process by case. The file OUT<ID>
gets the problems that the process reported, by case.
"""

import os
import pickle
import sys
from pathlib import Path
from typing import Any


def find_problems(keywords: dict[str, Any]) -> list[str]:
    """Make a solver; return the messages of its error, or none."""
    import optax

    import caffejax

    os.chdir(keywords.pop("folder", "."))
    if (learning_rate := keywords.pop("learning_rate", None)) is not None:
        keywords["optimizer"] = optax.sgd(learning_rate)
    try:
        caffejax.Solver(keywords.pop("solver"), **keywords).close()
    except caffejax.CaffejaxError as error:
        return [str(problem) for problem in error.problems]
    return []


def main(address: str, process_id: str, cases: str, out: str) -> None:
    import caffejax

    caffejax.initialize_distributed(address, 2, int(process_id))
    all_items = pickle.loads(Path(cases).read_bytes()).items()
    results = {name: find_problems(items[int(process_id)]) for name, items in all_items}
    Path(out + process_id).write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
