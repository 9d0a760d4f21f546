"""Time each layer of a net, compiled separately as in Caffe's table, and the full net, compiled as one program."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..base.glog import log, start_logging
from . import device_flags, flags, net_flags

if TYPE_CHECKING:
    from ..tools.debugging import LayerTime, Timer

HELP = "time a net's layers, and the full net"
EXAMPLE = "caffejax time configs/digits/lenet_train_test.prototxt --iterations=20"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    net_flags.add_flags(parser)
    flags.add(parser, "weights", "the .caffemodel[.h5] files, separated by commas (default: random)", metavar="FILES")
    net_flags.add_strict_flag(parser)
    flags.add(parser, "iterations", "the number of passes to time", type=flags.parse_positive, default=50, metavar="N")
    flags.add_options(parser, "kernels", "precision")
    flags.add_json_flag(parser, "print the mean times as JSON, in milliseconds; the log goes to stderr")
    device_flags.add_device_flags(parser)


def run(options: argparse.Namespace) -> None:
    """Time the net."""
    start_logging()
    import jax

    from ..core.graph.caffe_log import log_creation
    from ..tools.debugging import Timer

    device = device_flags.pick_device(options, prefer_gpu=False)
    log.info("Running on %s", device)
    with jax.default_device(device):
        net = net_flags.build_net(options)
        log_creation(net.graph)
        variables = jax.device_put(net_flags.load_variables(net, options.weights, options.strict_weights), device)
        timer = Timer(net, variables, jax.random.key(1))
        try:
            results = _time_passes(timer, options.iterations, str(net.layer_schedule))
        finally:
            timer.close()
    if options.json:
        flags.print_json(results)


def _time_passes(timer: Timer, iterations: int, schedule_text: str) -> dict[str, Any]:
    """Time the forward and backward passes, log the times, and return JSON values with the means in ms."""
    from ..tools.debugging import average_times

    log.info("Compiling.")
    timer.time_layers()
    timer.time_net()
    log.info("*** Benchmark begins ***")
    log.info("Testing for %d iterations.", iterations)
    passes = []
    for i in range(iterations):
        passes.append(timer.time_layers())
        total = sum(layer.forward + layer.backward for layer in passes[-1])
        log.info("Iteration: %d forward-backward time: %.3g ms.", i + 1, total)
    net_times = [timer.time_net() for _ in range(iterations)]
    layers = list(average_times(passes))
    _log_layers(layers, iterations)
    log.info("Compiled as one program, which training and testing run:")
    for line in schedule_text.splitlines():
        log.info("  %s", line)
    times_by_pass = dict(zip(net_times[0]._fields, zip(*net_times, strict=True), strict=True))
    mean_times = {name: None if None in times else fmean(times) for name, times in times_by_pass.items()}
    log.info("Average fused Forward pass: %.6g ms.", mean_times["forward"])
    log.info("Average fused Forward-Backward: %.6g ms.", mean_times["both"])
    if mean_times["frozen"] is not None:
        log.info("Average frozen Forward pass: %.6g ms.", mean_times["frozen"])
    log.info("*** Benchmark ends ***")
    return {"iterations": iterations, "layers": [layer._asdict() for layer in layers], "whole": mean_times}


def _log_layers(mean_times: Sequence[LayerTime], iterations: int) -> None:
    """Log the mean times of each layer over all passes, in the format of Caffe's table."""
    forward, backward = sum(layer.forward for layer in mean_times), sum(layer.backward for layer in mean_times)
    log.info("Average time per layer:")
    for layer in mean_times:
        log.info("%10s\tforward: %.6g ms.", layer.name, layer.forward)
        log.info("%10s\tbackward: %.6g ms.", layer.name, layer.backward)
    log.info("Average Forward pass: %.6g ms.", forward)
    log.info("Average Backward pass: %.6g ms.", backward)
    log.info("Average Forward-Backward: %.6g ms.", forward + backward)
    log.info("Total Time: %.6g ms.", iterations * (forward + backward))
