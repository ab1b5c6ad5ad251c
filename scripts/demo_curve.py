"""The loss curve of a training: kept as JSON, drawn as SVG."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from demo_training import CurvePoint

_WIDTH, _HEIGHT = 640, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 16, 40
_TICKS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def write_curve(folder: Path, curve: Sequence[CurvePoint]) -> None:
    """Write loss.json, and loss.svg for the card."""
    rows = [
        [point.step, round(point.loss, 4), *([point.stage] if point.stage > 1 else [])]
        for point in curve
    ]
    (folder / "loss.json").write_text(json.dumps(rows) + "\n", encoding="utf-8")
    (folder / "loss.svg").write_text(draw(curve), encoding="utf-8")


def read_curve(folder: Path) -> list[CurvePoint]:
    """The curve that `write_curve` kept."""
    rows = json.loads((folder / "loss.json").read_text(encoding="utf-8"))
    return [CurvePoint(*row) for row in rows]


def joined(first: Sequence[CurvePoint], second: Sequence[CurvePoint]) -> list[CurvePoint]:
    """One curve of a training and of the stage that went on from it; steps are counted on."""
    before = first[-1]
    went_on = [
        replace(point, step=before.step + point.step, stage=before.stage + 1) for point in second
    ]
    return [*first, *went_on]


def steps_of_stages(curve: Sequence[CurvePoint]) -> list[int]:
    """How many steps each stage of a training took."""
    last = {point.stage: point.step for point in curve}
    ends = [0, *(last[stage] for stage in sorted(last))]
    return [end - begin for begin, end in itertools.pairwise(ends)]


def draw(curve: Sequence[CurvePoint]) -> str:
    """A picture of the curve: steps from left to right, the loss on a logarithmic scale."""
    low = min(point.loss for point in curve)
    high = max(point.loss for point in curve)
    bottom, top = math.log(low / 1.1), math.log(high * 1.1)
    last = curve[-1].step

    def x(step: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * step / last

    def y(loss: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (top - math.log(loss)) / (top - bottom)

    points = " ".join(f"{x(point.step):.1f},{y(point.loss):.1f}" for point in curve)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for tick in (tick for tick in _TICKS if bottom <= math.log(tick) <= top):
        lines.append(
            f'<path d="M{_LEFT} {y(tick):.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>'
            f'<text x="{_LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
        )
    for quarter in range(5):
        step = last * quarter // 4
        lines.append(
            f'<text x="{x(step):.1f}" y="{_HEIGHT - 22}" text-anchor="middle">{step}</text>'
        )
    lines += [
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 6}" text-anchor="middle">step</text>',
        f'<text transform="translate(14 {_HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
        "loss, nats per token</text>",
        f'<polyline points="{points}" fill="none" stroke="#d9480f" stroke-width="1.5"/>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
