"""The report of `caffejax check` as one HTML page without scripts or links to other files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from types import MappingProxyType

from ...base.errors import CaffejaxError, GraphError
from ...base.glog import collect_warnings
from ...base.human_readable import format_bytes, format_count, format_number
from ...core.layers import type_of
from ...core.schema import read_valid_part
from ...core.schema.caffe_pb2 import LayerParameter, NetParameter
from .check_report import Finding, PhaseReport, Report, distinct_phases, distinct_weights, format_outcome

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #222; }
h1 { font-size: 1.5em; } table { border-collapse: collapse; width: 100%; }
details { border: 1px solid #ddd; border-left: 6px solid #2a2; border-radius: 4px; margin: .5em 0; padding: .4em .8em; }
details.fails { border-left-color: #c22; } details.skipped { border-left-color: #aaa; }
summary { cursor: pointer; display: flex; gap: 1em; }
summary .file { flex: 1; font-weight: 600; overflow-wrap: anywhere; }
summary .number { min-width: 6em; text-align: right; color: #555; }
code { background: #f3f3f3; padding: .1em .3em; border-radius: 3px; overflow-wrap: anywhere; }
.wrong { color: #a11; } ul { margin: .3em 0; } svg { max-width: 100%; height: auto; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } code { background: #2a2a2a; }
  .wrong { color: #f88; } summary .number { color: #aaa; } details { border-color: #444; } }
"""
# colours of layers in drawings
_LOSS, _CONVOLUTION, _POOLING, _PRODUCT = "#c94f4f", "#3b82c4", "#3aa76d", "#7a4fb5"
_NORMALISATION, _ELEMENTWISE, _OTHER = "#d9a441", "#b8b8b8", "#8a9aa8"
_CELL_SIZE, _MAX_LAYERS = 9, 1500
_MAX_STATES_LENGTH = 40  # characters


def render_html_report(
    reports: Sequence[Report], headline: str, skip_reasons: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return a page with a section for each model: phases, problems, weights, a drawing and the command to run next.

    Args:
        reports: the reports on the models.
        headline: the summary, such as "2 of 3 nets load".
        skip_reasons: for each file that is neither a net nor a solver, the reason why it is not.
    """
    sections = "\n".join(_render_section(report) for report in sorted(reports, key=lambda r: (r.loads, r.file)))
    file_list = "".join(
        _render_list([f"<code>{escape(name)}</code>: {escape(reason)}" for name, reason in skip_reasons.items()])
    )
    other_files = f"<p>Neither net nor solver:</p>{file_list}" if skip_reasons else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"/><meta name="viewport" content="width=device-width"/>
<title>{escape(headline)}</title><style>{_STYLE}</style></head><body>
<h1>{escape(headline)}</h1>
<p>Made by <code>caffejax check --html</code>. Models with problems come first. Memory is for the net's batch; in phase
TRAIN it is the memory of training.</p>
{sections}
{other_files}
</body></html>
"""


def _render_section(report: Report) -> str:
    parameters, memory = report.largest_sizes()
    sizes = [format_number(parameters) + " params" if parameters else "", format_bytes(memory) if memory else ""]
    cells = "".join(f'<span class="number">{text}</span>' for text in sizes)
    outcome = "loads" if report.loads else format_outcome(report, _MAX_STATES_LENGTH)
    command = suggest_command(report)
    lines = [
        '<details class="loads">' if report.loads else '<details class="fails" open="">',
        f'<summary><span class="file">{escape(report.file)}</span><span>{outcome}</span>{cells}</summary>',
        *_render_list([_render_finding(finding) for finding in report.findings]),
        *(line for phase in distinct_phases(report.phases) for line in _render_phase(phase)),
        *_render_weights(report),
        *_render_list([f"note: {escape(note)}" for note in report.notes]),
        *_render_drawing(report),
        *([f"<p>Next: <code>{escape(command)}</code></p>"] if command else []),
        "</details>",
    ]
    return "\n".join(lines)


def _render_phase(phase: PhaseReport) -> Iterator[str]:
    outcome = {"loads": "loads", "fails": '<span class="wrong">does not load</span>', "no data": "has no data layer"}
    yield f"<p><b>{escape(phase.state)}</b> {outcome[phase.outcome]}"
    if phase.on_host:
        yield f"; on the host: {escape(', '.join(phase.on_host))}; {format_count(phase.compiled, 'layer')} compiled"
    yield "</p>"
    yield from _render_list([*map(_render_finding, phase.findings), *map(escape, phase.assumed)])


def _render_weights(report: Report) -> Iterator[str]:
    for match, states in distinct_weights(report.phases):
        text = (
            f"{escape(states)}: <code>{escape(match.file)}</code>: blobs for {format_count(match.matched, 'layer')} fit"
        )
        missing = escape(", ".join(match.missing[:8]))
        text += f"; {len(match.missing)} without blobs: {missing}" if match.missing else ""
        text += f"; {format_count(match.unused, 'layer')} of the file not in the net" if match.unused else ""
        yield from _render_list([text, *(_render_finding(problem) for problem in match.mismatched)])


def _render_finding(finding: Finding) -> str:
    return f'<span class="wrong">{escape(str(finding))}</span>'


def _render_list(items: Sequence[str]) -> Iterator[str]:
    if items:
        yield f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def suggest_command(report: Report) -> str | None:
    """Return the next command for a user, which runs or trains a model that loads, or helps to repair other models.

    Return None if the file is neither a net nor a solver, such as an HTML page.
    """
    if report.kind in ("unreadable", "other"):
        return None
    file = shlex.quote(report.file)
    findings = [*report.findings, *(f for phase in report.phases for f in phase.findings)]
    if any(finding.cause in ("type", "python") for finding in findings):
        return f"caffejax check {file} --import=MODULE_WITH_THE_LAYERS"
    if not report.loads:
        return f"caffejax view {file}"
    if report.kind == "solver":
        return f"caffejax train --solver={file}"
    for weights in (match for phase in report.phases for match in phase.weights if match.matched):
        return f"caffejax predict {file} IMAGE --weights={shlex.quote(weights.file)}"
    return f"caffejax summary {file}"


def _render_drawing(report: Report) -> Iterator[str]:
    """Yield a drawing of a net with a cell for each layer, from left to right in the order of computation."""
    if report.kind != "net" or any(finding.cause == "crash" for finding in report.findings):
        return  # this file crashed a worker process
    try:
        with collect_warnings():  # they are notes of the report
            net, _ = read_valid_part(Path(report.file))
    except CaffejaxError:
        return
    positions = _lay_out_layers(net)
    if not positions:
        return
    width, height = (_CELL_SIZE * (1 + max(position[axis] for position in positions.values())) for axis in (0, 1))
    yield f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="the layers of the net">'
    for index, (x, y) in positions.items():
        layer: LayerParameter = net.layer[index]
        geometry = f'x="{x * _CELL_SIZE}" y="{y * _CELL_SIZE}" width="{_CELL_SIZE - 2}" height="{_CELL_SIZE - 2}"'
        color = _choose_color(layer)
        yield f'<rect {geometry} fill="{color}"><title>{escape(f"{layer.name} ({layer.type})")}</title></rect>'
    yield "</svg>"


def _choose_color(layer: LayerParameter) -> str:
    try:
        layer_type = type_of(layer)
    except GraphError:  # an unknown type
        return _OTHER
    traits, has_params = layer_type.traits, layer_type.params is not None
    if layer_type.is_loss or layer_type.is_metric:
        return _LOSS
    if traits.window is not None:
        return _CONVOLUTION if has_params else _POOLING
    if traits.channel_affine is not None:
        return _NORMALISATION
    if has_params and traits.weight_axes > 1:
        return _PRODUCT
    return _ELEMENTWISE if traits.elementwise else _OTHER


def _lay_out_layers(net: NetParameter) -> Mapping[int, tuple[int, int]]:
    """Return the column and row of each layer in the drawing.

    A layer is one column to the right of all layers whose tops it reads.
    """
    columns: dict[str, int] = {}  # of the layer that writes a blob
    rows: dict[int, int] = {}  # number of occupied rows by column
    positions = {}
    for index, layer in enumerate(net.layer[:_MAX_LAYERS]):
        column = 1 + max((columns.get(name, -1) for name in layer.bottom), default=-1)
        positions[index] = (column, rows.get(column, 0))
        rows[column] = rows.get(column, 0) + 1
        columns.update(dict.fromkeys(layer.top, column))
    return positions
