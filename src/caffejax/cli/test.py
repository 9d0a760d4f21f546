"""Score a trained net: print the mean of each output over a number of batches in phase TEST."""

from __future__ import annotations

import argparse

from ..glog import log, start_logging
from . import device_flags, flags, net_flags

HELP = "score a net with trained weights"
EXAMPLE = (
    "caffejax test configs/digits/lenet_train_test.prototxt "
    "--weights=snapshots/lenet_iter_1000.caffemodel --iterations=4"
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    net_flags.add_flags(parser, "TEST")
    flags.add(parser, "weights", "the .caffemodel[.h5] files, separated by commas", required=True, metavar="FILES")
    net_flags.add_strict_flag(parser)
    flags.add(parser, "iterations", "the number of batches to run", type=flags.parse_positive, default=50, metavar="N")
    flags.add_options(parser, "kernels", "precision", "workers", "skip_bad")
    flags.add_json_flag(parser, "print the mean scores as JSON; the log goes to stderr")
    device_flags.add_device_flags(parser)


def run(options: argparse.Namespace) -> None:
    """Score the net."""
    start_logging()
    import jax

    from ..graph.caffe_log import log_creation
    from ..metrics import convert_outputs
    from ..training import Evaluator, Scores
    from ..training.output_checks import check_layer_outputs
    from ..training.reporting import format_score_lines

    device = device_flags.pick_device(options, prefer_gpu=False)
    log.info("Running on %s", device)
    net = net_flags.build_net(options)
    check_layer_outputs([("the net", net.graph)])
    evaluator = Evaluator(net, device, freeze=True)  # raises for a net without data

    def log_batch(batch_index: int, scores: Scores) -> None:
        for line in format_score_lines(scores.outputs):
            log.info("Batch %d, %s", batch_index, line)

    try:
        log_creation(net.graph)
        variables = net_flags.load_variables(net, options.weights, options.strict_weights)
        log.info("Running for %d iterations.", options.iterations)
        scores = evaluator(jax.device_put(variables, device), options.iterations, jax.random.key(0), log_batch)
    finally:
        evaluator.loader.close()
    log.info(f"Loss: {scores.loss:g}")
    for line in format_score_lines(scores.outputs, net.graph.loss_weights):
        log.info(line)
    if options.json:
        flags.print_json(
            {"iterations": options.iterations, "loss": scores.loss, "outputs": convert_outputs(scores.outputs)}
        )
