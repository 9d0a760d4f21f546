"""Measure the time from prototxt to a graph with all shapes, for each net of a folder or zip of prototxt files.

python benchmarks/build_graphs.py nets.zip
"""

import argparse
import statistics
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from caffejax import CaffejaxError, build_graph, read_net
from caffejax.core.graph import make_net_state


def read_texts(path: Path) -> Iterator[tuple[str, str]]:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".prototxt"):
                    yield name, archive.read(name).decode()
    else:
        for file in sorted(path.rglob("*.prototxt")):
            yield str(file), file.read_text()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", type=Path, help="a folder or a zip file")
    parser.add_argument("--phase", default="TEST", choices=("TRAIN", "TEST"))
    parser.add_argument("--slowest", type=int, default=10, help="how many nets to list")
    options = parser.parse_args()
    rows, num_refused = [], 0
    for name, text in read_texts(options.nets):
        start = time.perf_counter()
        try:
            net = read_net(text)
            graph = build_graph(net, make_net_state(net, options.phase))
        except CaffejaxError:
            num_refused += 1
            continue
        rows.append((time.perf_counter() - start, len(graph.layers), name))
    rows.sort(reverse=True)
    for seconds, layers, name in rows[: options.slowest]:
        print(f"{seconds:7.3f} s  {layers:5d} layers  {name}")
    if rows:
        median = statistics.median(row[0] for row in rows)
        print(f"{median:7.3f} s  median of {len(rows)} nets ({num_refused} cannot be built)")


if __name__ == "__main__":
    main()
