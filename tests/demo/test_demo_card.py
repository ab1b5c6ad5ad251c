"""The embedded models' cards: written by the script, with a picture of the loss."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from demo_curve import draw, joined, read_curve, steps_of_stages, write_curve
from demo_exam import EXAM
from demo_training import CurvePoint

from inferno.demo import MODEL_FOLDERS

_CURVE = [CurvePoint(25, 4.0), CurvePoint(50, 1.0), CurvePoint(75, 0.25)]
_SVG = "{http://www.w3.org/2000/svg}"


def test_a_curve_is_kept(tmp_path: Path) -> None:
    write_curve(tmp_path, _CURVE)
    assert read_curve(tmp_path) == _CURVE
    assert (tmp_path / "loss.svg").read_text(encoding="utf-8") == draw(_CURVE)


def test_a_second_stage_goes_on_with_the_curve_of_the_first(tmp_path: Path) -> None:
    whole = joined(_CURVE, [CurvePoint(10, 0.2), CurvePoint(15, 0.1)])
    write_curve(tmp_path, whole)
    assert read_curve(tmp_path) == whole
    assert [(point.step, point.stage) for point in whole[2:]] == [(75, 1), (85, 2), (90, 2)]
    assert steps_of_stages(_CURVE) == [75]
    assert steps_of_stages(whole) == [75, 15]
    assert steps_of_stages(joined(whole, _CURVE)) == [75, 15, 75]


def test_a_curve_is_drawn_on_a_logarithmic_scale() -> None:
    picture = ElementTree.fromstring(draw(_CURVE))
    [line] = picture.iter(f"{_SVG}polyline")
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y2 - y1 == pytest.approx(y1 - y0, abs=0.2)  # each point is a quarter of the one before
    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    assert 0 < x0 < x2 <= width
    assert 0 < y0 < y2 <= height


@pytest.mark.parametrize("model", MODEL_FOLDERS)
def test_a_card_says_what_was_measured(model: str) -> None:
    card = (MODEL_FOLDERS[model] / "README.md").read_text(encoding="utf-8")
    assert card.startswith(f"# {model}, ")
    assert "(loss.svg)" in card
    assert "{" not in card.replace("`", "")
    for kind in EXAM:
        assert f"\n| {kind} |" in card
    assert card.count("\n> ") == 10  # samples
    _, *further = steps_of_stages(read_curve(MODEL_FOLDERS[model]))
    assert f"of {', '.join(map(str, further[:-1]))} and {further[-1]} steps" in card
    assert ("of its tokens are accepted" in card) == (model == "demo-draft")


@pytest.mark.parametrize("model", MODEL_FOLDERS)
def test_the_loss_fell(model: str) -> None:
    curve = read_curve(MODEL_FOLDERS[model])
    assert curve[0].loss > 3 > 1 > curve[-1].loss
    assert all(math.isfinite(point.loss) for point in curve)
