"""Report in which phases models load, which files are missing, whether weights fit, and which layers run on the host.

FILE is a net or a solver. In a FOLDER and its subfolders, all *.prototxt, *.pt and *.pbtxt files are checked. No layer
runs, and data files need not exist. The exit code is 0 if all models load; it is 1 if a model does not load or if
there are no models.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.errors import CaffejaxError
from ..base.human_readable import format_bytes, format_count, format_list, format_number
from . import flags, net_flags

if TYPE_CHECKING:
    from ..tools.model_check import Report

HELP = "report which models load and why others do not"
EXAMPLE = "caffejax check models/ my_net/deploy.prototxt --html=report.html"

_LINE_WIDTH = 100
_PATH_WIDTH, _STATES_WIDTH = 50, 12
_MAX_LISTED_WEIGHTS, _MAX_LISTED_OLD_MODELS = 5, 3
_ROW_FORMAT = "{:<50}  {:<24}  {:>8}  {:>10}"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments and flags."""
    parser.add_argument("paths", nargs="+", type=_parse_path, metavar="FILE|FOLDER", help="nets, solvers, or folders")
    weights_help = "check these weights against the nets (default: files in the net's folder with its base name)"
    flags.add(parser, "weights", weights_help, type=_parse_path, metavar="FILE")
    flags.add_json_flag(parser, "print everything as JSON")
    flags.add(
        parser, "html", "also write an HTML page with all models, drawings and suggested commands", metavar="FILE.html"
    )
    net_flags.add_import_and_limit_flags(parser)
    jobs_help = "number of files to check in parallel (default: the number of cores)"
    parser.add_argument("-j", "--jobs", type=flags.parse_positive, metavar="N", help=jobs_help)
    flags.add(
        parser, "timeout", "time limit for each file, in seconds", type=flags.parse_positive, default=120, metavar="N"
    )


def run(options: argparse.Namespace) -> None:
    """Check the models and print a report on each."""
    from ..base.atomic_write import replace_file
    from ..tools.model_check.check import check_files
    from ..tools.model_check.model_files import find_model_files

    model_paths = list(find_model_files(options.paths))
    if not model_paths:
        folders = ", ".join(map(str, options.paths))
        raise CaffejaxError(f"there are no *.prototxt, *.pt or *.pbtxt files in {folders}")
    if options.html:
        flags.check_output_path(options.html, *map(str, model_paths))
    weights_paths = [options.weights] if options.weights else []
    reports = check_files(
        model_paths,
        weights_paths,
        jobs=options.jobs,
        timeout=options.timeout,
        config=flags.make_config(options),
        imports=options.imports or (),
    )
    path_arguments = {str(path) for path in options.paths}
    models: list[Report] = []
    skip_reasons: dict[str, str] = {}  # other files in folders, and why they are not models
    for report in reports:
        if report.kind == "other" and report.file not in path_arguments:
            skip_reasons[report.file] = str(report.findings[0])
            continue
        if not options.json:
            _print_report(report, is_first=not models)
        models.append(report)
    failed_models = [report for report in models if not report.loads]
    if options.json:
        flags.print_json({"models": [report.as_json() for report in models], "skipped": skip_reasons})
    else:
        _print_summary(models, skip_reasons)
        if not weights_paths:
            _print_absent_weights(models, options.paths)
    if options.html:
        from ..tools.model_check.html_report import render_html_report

        page = render_html_report(models, _format_loading_counts(models), skip_reasons)
        with replace_file(options.html) as file:
            file.write(page.encode())
    if failed_models:
        raise CaffejaxError(_format_failure_counts(failed_models, models))
    if not models:
        raise CaffejaxError("there is neither a net nor a solver in these folders")


def _parse_path(text: str) -> Path:
    if not os.path.exists(text):
        raise argparse.ArgumentTypeError(f"there is no file or folder '{text}'")
    return Path(text)


def _print_report(report: Report, is_first: bool) -> None:
    if is_first:
        print(_ROW_FORMAT.format("model", "loads in", "params", "memory"))
    for line in _format_report(report):
        print(line)
    sys.stdout.flush()


def _format_report(report: Report) -> Iterator[str]:
    from ..core.schema.upgrade import is_about_old_form
    from ..tools.model_check.check_report import distinct_phases, distinct_weights, format_outcome

    parameters, memory = report.largest_sizes()
    sizes = (format_number(parameters), format_bytes(memory) if memory else "-")
    file = _shorten_path(report.file) if sys.stdout.isatty() else report.file
    if len(file) > _PATH_WIDTH:
        yield file
        file = ""
    yield _ROW_FORMAT.format(file, format_outcome(report, _STATES_WIDTH), *sizes).rstrip()
    states = " ".join(phase.state for phase in report.phases if phase.outcome == "loads")
    yield from _wrap((f"loads in {states}",) if len(states) > _STATES_WIDTH else (), "")
    yield from _wrap((str(finding) for finding in report.findings), "")
    for phase in distinct_phases(report.phases):
        if phase.outcome == "no data":
            yield f"  {phase.state}: no data layer for this phase"
        yield from _wrap((str(finding) for finding in phase.findings), f"{phase.state}: ")
        yield from _wrap(phase.assumed, f"{phase.state}: ")
        if phase.on_host:
            sentence = f"on the host: {', '.join(phase.on_host)}; {format_count(phase.compiled, 'layer')} compiled"
            yield from _wrap([sentence], f"{phase.state}: ")
    for match, states in distinct_weights(report.phases):
        missing_note = f"; {len(match.missing)} without blobs: {', '.join(match.missing[:5])}" if match.missing else ""
        unused_note = f"; {format_count(match.unused, 'layer')} of the file not in the net" if match.unused else ""
        sentence = f"{match.file}: blobs for {format_count(match.matched, 'layer')} fit{missing_note}{unused_note}"
        yield from _wrap([sentence, *map(str, match.mismatched)], f"{states}: ")
    yield from _wrap([note for note in report.notes if not is_about_old_form(note)], "note: ")


def _wrap(sentences: Iterator[str] | tuple[str, ...] | list[str], prefix: str) -> Iterator[str]:
    for sentence in sentences:
        yield from textwrap.wrap(
            f"{prefix}{sentence}", _LINE_WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
        )


def _print_summary(models: list[Report], skip_reasons: dict[str, str]) -> None:
    from ..core.schema.upgrade import is_about_old_form

    print("\n" * bool(models) + f"{_format_loading_counts(models)}.")
    old_models = [report.file for report in models if any(map(is_about_old_form, report.notes))]
    if old_models:
        files = format_list(old_models, _MAX_LISTED_OLD_MODELS)
        print(f"Written in old forms, which load; `caffejax upgrade OLD NEW` rewrites them: {files}")
    if skip_reasons:
        print(f"Neither net nor solver: {format_count(len(skip_reasons), 'file')}")
        for line in _wrap([f"{file}: {reason}" for file, reason in skip_reasons.items()], ""):
            print(line)


def _print_absent_weights(models: list[Report], paths: list[Path]) -> None:
    """Print how many nets have no weights file with the same base name, and which weights files belong to no net."""
    from ..tools.model_check.model_files import find_weights, find_weights_without_net

    nets = [report for report in models if report.kind == "net"]
    num_without_weights = sum(not find_weights(Path(report.file)) for report in nets)
    unused_paths = find_weights_without_net(paths)
    sentences = []
    if num_without_weights:
        sentences.append(f"no weights were found for {num_without_weights} of {format_count(len(nets), 'net')}")
    if unused_paths:
        verb = "belongs" if len(unused_paths) == 1 else "belong"
        count_text = f"{format_count(len(unused_paths), 'weights file')} {verb} to no net"
        sentences.append(f"{count_text}: {format_list(unused_paths, _MAX_LISTED_WEIGHTS)}")
    if sentences:
        text = "; ".join(sentences)
        explanation = "a file belongs to the net with the same base name; `--weights` names one"
        for line in textwrap.wrap(
            f"{text[0].upper()}{text[1:]} ({explanation}).",
            _LINE_WIDTH,
            subsequent_indent="  ",
            break_on_hyphens=False,
            break_long_words=False,
        ):
            print(line)


def _format_loading_counts(models: list[Report]) -> str:
    models = [report for report in models if report.kind in ("net", "solver")]
    return _format_counts_by_kind([report for report in models if report.loads], models, "loads", "load")


def _format_failure_counts(failed: list[Report], models: list[Report]) -> str:
    """Return how many models fail, of how many of the same kinds, such as "1 of 6 nets does not load"."""
    kinds = {report.kind for report in failed}
    return _format_counts_by_kind(failed, [r for r in models if r.kind in kinds], "does not load", "do not load")


def _format_counts_by_kind(selected: list[Report], models: list[Report], singular: str, plural: str) -> str:
    """Return a text with the counts by kind of model, such as "2 of 3 nets and 1 of 1 solver load".

    Args:
        selected: the reports to count.
        models: the reports on all models; if it is empty, the text is "0 nets load".
        singular, plural: the verb in singular and plural.
    """
    nouns = {"net": "net", "solver": "solver", "unreadable": "unreadable file", "other": "other file"}
    models_by_kind = {kind: [report for report in models if report.kind == kind] for kind in nouns}
    parts = [
        f"{sum(report.kind == kind for report in selected)} of {format_count(len(reports), nouns[kind])}"
        for kind, reports in models_by_kind.items()
        if reports
    ]
    return (
        f"{' and '.join(parts) or '0 nets'} {singular if len(parts) == 1 in (len(selected), len(models)) else plural}"
    )


def _shorten_path(path: str) -> str:
    return path if len(path) <= _PATH_WIDTH else f"…{path[1 - _PATH_WIDTH :]}"
