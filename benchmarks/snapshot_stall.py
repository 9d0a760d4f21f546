"""Measure how long a snapshot delays training, on a net with many parameters.

python benchmarks/snapshot_stall.py --megabytes 200
"""

import argparse
import statistics
import tempfile
import time

from caffejax import Solver

NET = """
layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{
  shape {{ dim: 64 dim: 1024 }} shape {{ dim: 64 }} data_filler {{ type: "gaussian" }}
  data_filler {{ type: "constant" }} }} }}
layer {{ name: "wide" type: "InnerProduct" bottom: "data" top: "wide"
  inner_product_param {{ num_output: {width} weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "out" type: "InnerProduct" bottom: "wide" top: "out" inner_product_param {{ num_output: 10 }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "out" bottom: "label" top: "loss" }}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200, help="size of the parameters")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    net = NET.format(width=options.megabytes * 2**20 // 4 // 1024)
    with tempfile.TemporaryDirectory() as folder:
        solver = Solver(
            f'net_param {{ {net} }} base_lr: 0.0001 momentum: 0.9 lr_policy: "fixed" random_seed: 1 '
            f'snapshot_prefix: "{folder}/x"',
            keep_last=1,
        )

        def time_iterations(snapshot: bool) -> float:
            start = time.perf_counter()
            if snapshot:
                solver.snapshot(wait=False)
            solver.step(10)
            solver.train_state.iteration.block_until_ready()
            return time.perf_counter() - start

        def time_synchronous_snapshot() -> float:
            start = time.perf_counter()
            solver.snapshot()
            return time.perf_counter() - start

        time_iterations(snapshot=True)  # compile, import
        rows = []
        for _ in range(options.repeats):  # in turn: the machine's noise meets all alike
            plain_seconds = time_iterations(snapshot=False)
            snapshot_seconds = time_iterations(snapshot=True)
            solver.snapshots.wait()
            rows.append((plain_seconds, snapshot_seconds, time_synchronous_snapshot()))
        plain_seconds, snapshot_seconds, synchronous_seconds = (
            statistics.median(column) for column in zip(*rows, strict=True)
        )
        solver.close()
    print(f"10 iterations                    {plain_seconds:7.3f} s")
    print(f"10 iterations after a snapshot   {snapshot_seconds:7.3f} s")
    print(f"the snapshot until it is written {synchronous_seconds:7.3f} s")
    delay = snapshot_seconds - plain_seconds
    print(f"held up for {delay:.3f} s, {delay / synchronous_seconds:.0%} of what a snapshot takes")


if __name__ == "__main__":
    main()
