"""Time a net: each layer compiled separately, for Caffe's table, and the whole net compiled as one program."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..glog import log, start_logging
from . import device_flags, flags, net_flags

if TYPE_CHECKING:
    from ..debugging import LayerTime, Timer

HELP = "time a net's layers, and the whole net"
EXAMPLE = "caffejax time configs/digits/lenet_train_test.prototxt --iterations=20"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    net_flags.add_flags(parser)
    flags.add(parser, "weights", "the .caffemodel[.h5] files, separated by commas (default: random)", metavar="FILES")
    net_flags.add_strict_flag(parser)
    flags.add(parser, "iterations", "the number of passes to time", type=flags.positive, default=50, metavar="N")
    flags.add_options(parser, "kernels", "precision")
    device_flags.add_device_flag(parser)


def run(options: argparse.Namespace) -> None:
    """Time the net."""
    start_logging()
    import jax

    from ..debugging import Timer
    from ..graph.creation_log import log_creation

    device = device_flags.pick_device(options, prefer_gpu=False)
    log.info("Running on %s", device)
    with jax.default_device(device):
        net = net_flags.net_of(options)
        log_creation(net.graph)
        variables = jax.device_put(net_flags.variables_of(net, options.weights, options.strict_weights), device)
        timer = Timer(net, variables, jax.random.key(1))
        try:
            _time(timer, options.iterations, str(net.schedule))
        finally:
            timer.close()


def _time(timer: Timer, iterations: int, plan: str) -> None:
    log.info("Compiling.")
    timer.layers()
    timer.whole()
    log.info("*** Benchmark begins ***")
    log.info("Testing for %d iterations.", iterations)
    passes = []
    for i in range(iterations):
        passes.append(timer.layers())
        both = sum(layer.forward + layer.backward for layer in passes[-1])
        log.info("Iteration: %d forward-backward time: %.3g ms.", i + 1, both)
    whole = [timer.whole() for _ in range(iterations)]
    _log_layers(passes)
    log.info("Compiled as one, which is what training and testing run:")
    for line in plan.splitlines():
        log.info("  %s", line)
    log.info("Average fused Forward pass: %.6g ms.", sum(times.forward for times in whole) / iterations)
    log.info("Average fused Forward-Backward: %.6g ms.", sum(times.both for times in whole) / iterations)
    frozen = [times.frozen for times in whole if times.frozen is not None]
    if frozen:
        log.info("Average frozen Forward pass: %.6g ms.", sum(frozen) / iterations)
    log.info("*** Benchmark ends ***")


def _log_layers(passes: list[list[LayerTime]]) -> None:
    """Log the mean times of each layer over all passes, in the form of Caffe's table."""
    from ..debugging import mean_times

    means = list(mean_times(passes))
    forward, backward = sum(layer.forward for layer in means), sum(layer.backward for layer in means)
    log.info("Average time per layer:")
    for layer in means:
        log.info("%10s\tforward: %.6g ms.", layer.name, layer.forward)
        log.info("%10s\tbackward: %.6g ms.", layer.name, layer.backward)
    log.info("Average Forward pass: %.6g ms.", forward)
    log.info("Average Backward pass: %.6g ms.", backward)
    log.info("Average Forward-Backward: %.6g ms.", forward + backward)
    log.info("Total Time: %.6g ms.", len(passes) * (forward + backward))
