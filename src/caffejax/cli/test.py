"""Score a trained net: print the mean of each output over a number of batches in phase TEST."""

from __future__ import annotations

import argparse

from ..base.config import AP_VERSIONS, EVAL_TYPES
from ..base.glog import log, start_logging
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
    flags.add(
        parser,
        "eval_type",
        "how outputs are scored: by their means, for nets that end in DetectionEvaluate by the mean average precision, "
        "and beside it in SegmentationEvaluate by the mean intersection over union: caffejax test ssd.prototxt "
        "--weights=ssd.caffemodel --eval_type=detection --ap_version=11point",
        choices=EVAL_TYPES,
        default=EVAL_TYPES[0],
    )
    flags.add(
        parser,
        "ap_version",
        "how the average precision is computed, as in solvers",
        choices=AP_VERSIONS,
        default="Integral",
    )
    flags.add_switch(parser, "show_per_class_result", "log the average precision of each class")
    flags.add_options(parser, "kernels", "precision", "workers", "skip_bad")
    flags.add_json_flag(parser, "print the mean scores as JSON; the log goes to stderr")
    device_flags.add_device_flags(parser)


def run(options: argparse.Namespace) -> None:
    """Score the net."""
    start_logging()
    import jax

    from ..core.graph.caffe_log import log_creation
    from ..core.parallel.mesh import one_device_mesh
    from ..core.solver import Evaluator, Scores
    from ..core.solver.output_checks import check_layer_outputs
    from ..core.solver.reporting import format_class_lines, format_score_lines
    from ..tools.metrics import convert_outputs

    device = device_flags.pick_device(options, prefer_gpu=False)
    log.info("Running on %s", device)
    net = net_flags.build_net(options)
    check_layer_outputs([("the net", net.graph)])
    scoring = options.eval_type, options.ap_version
    evaluator = Evaluator(net, one_device_mesh(device), None, *scoring, freeze=True)  # raises for a net without data

    def log_batch(batch_index: int, scores: Scores) -> None:
        if options.eval_type != EVAL_TYPES[0]:  # the precision is computed of the detections of all batches
            return
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
    for line in format_class_lines(scores, options.show_per_class_result):
        log.info(line)
    for line in format_score_lines(scores.outputs, net.graph.loss_weights):
        log.info(line)
    if options.json:
        class_scores = {key: value for key in ("precisions", "ious") if (value := getattr(scores, key))}
        outputs = convert_outputs(scores.outputs)
        flags.print_json({"iterations": options.iterations, "loss": scores.loss, "outputs": outputs, **class_scores})
