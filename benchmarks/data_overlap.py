"""Measure what reading data costs a training run: iterations per second from an LMDB and from DummyData.

    python benchmarks/data_overlap.py

A LeNet on 28x28 and a small net on 32x32 color images, with crop, mirror and mean, train in turns from a database
made in a temporary folder and from constant DummyData. Also printed: how much memory grows over an epoch of a
database much larger than what is read ahead (Linux).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
from competitor_server import read_memory
from google.protobuf import text_format

from caffejax import Solver, caffe_pb2, write_lmdb

NETS = {  # name: (shape of an image, batch, transform_param, layers)
    "LeNet 28x28": ((1, 28, 28), 64, "scale: 0.00390625", ((20, 5), (50, 5))),
    "two convolutions 32x32": ((3, 32, 32), 100, "mirror: true crop_size: 28 mean_value: 120", ((32, 5), (32, 5))),
}


def draw_datums(shape: tuple[int, int, int], count: int) -> Iterator[tuple[bytes, bytes]]:
    rng = np.random.default_rng(0)
    channels, height, width = shape
    for index in range(count):
        data = rng.integers(0, 256, shape, np.uint8).tobytes()
        datum = caffe_pb2.Datum(channels=channels, height=height, width=width, data=data, label=index % 10)
        yield b"%08d" % index, datum.SerializeToString()


def make_solver(name: str, database: Path | None) -> Solver:
    """Make the net's solver, fed by the database, or by DummyData of the same shapes."""
    shape, batch, transform, convolutions = NETS[name]
    if database is not None:
        source = f"""type: "Data" transform_param {{ {transform} }}
            data_param {{ source: "{database}" batch_size: {batch} backend: LMDB }}"""
    else:
        source = f"""type: "DummyData" dummy_data_param {{
            shape {{ dim: {batch} dim: {shape[0]} dim: 28 dim: 28 }} shape {{ dim: {batch} }}
            data_filler {{ value: 0.5 }} data_filler {{ value: 1 }} }}"""
    layers, bottom = f'layer {{ name: "data" top: "data" top: "label" {source} }}', "data"
    for i, (outputs, kernel) in enumerate(convolutions):
        layers += f"""
            layer {{ name: "conv{i}" type: "Convolution" bottom: "{bottom}" top: "conv{i}" convolution_param {{
                num_output: {outputs} kernel_size: {kernel} weight_filler {{ type: "xavier" }} }} }}
            layer {{ name: "pool{i}" type: "Pooling" bottom: "conv{i}" top: "pool{i}"
                pooling_param {{ kernel_size: 2 stride: 2 }} }}"""
        bottom = f"pool{i}"
    layers += f"""
        layer {{ name: "ip" type: "InnerProduct" bottom: "{bottom}" top: "ip" inner_product_param {{
            num_output: 10 weight_filler {{ type: "xavier" }} }} }}
        layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}"""
    param = caffe_pb2.SolverParameter(base_lr=1e-6, lr_policy="fixed", momentum=0.9, random_seed=1)
    text_format.Merge(layers, param.net_param)
    return Solver(param)


def measure_rate(trainer: Solver, iterations: int) -> float:
    start = time.perf_counter()
    trainer.step(iterations)
    jax.block_until_ready(trainer.train_state)
    return iterations / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--records", type=int, default=20000)
    options = parser.parse_args()
    for name, (shape, batch, *_) in NETS.items():
        with tempfile.TemporaryDirectory() as folder:
            database = Path(folder) / "db"
            write_lmdb(database, draw_datums(shape, options.records))
            sides = {"LMDB": make_solver(name, database), "DummyData": make_solver(name, None)}
            for trainer in sides.values():
                trainer.step(20)
            rates: dict[str, list[float]] = {side: [] for side in sides}
            for _ in range(options.rounds):
                for side, trainer in sides.items():
                    rates[side].append(measure_rate(trainer, options.iterations))
            ratios = [a / b for a, b in zip(rates["LMDB"], rates["DummyData"], strict=True)]
            memory_before = read_memory("VmRSS")
            sides["LMDB"].step(options.records // batch)
            memory_growth = read_memory("VmRSS") - memory_before
            for trainer in sides.values():
                trainer.close()
        rates_text = ", ".join(f"{side} {statistics.median(r):.0f} it/s" for side, r in rates.items())
        print(f"{name}: {rates_text}; ratio of each pair, median {statistics.median(ratios):.3f}")
        print(f"  resident memory over an epoch of {options.records} records: {memory_growth / 2**20:+.1f} MiB")


if __name__ == "__main__":
    main()
