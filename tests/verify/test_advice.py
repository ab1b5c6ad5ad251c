"""What the diagnosis tells to look at exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import inferno
from inferno import ops
from inferno.verify.diagnosis.diagnose import _PLACES

SOURCE = Path(inferno.__file__).parent
PLACES = sorted({place.format(model="models/common.py") for place in _PLACES.values()})
READ_OR_BUILT = [
    path for room in ("config", "models", "layers") for path in SOURCE.glob(f"{room}/*")
]


@pytest.mark.parametrize("place", PLACES)
def test_places_to_look_at_exist(place: str) -> None:
    paths = re.findall(r"\b(?:\w+/)+(?:\w+\.py)?", place)
    assert not [path for path in paths if not (SOURCE / path).exists()]
    assert not [name for name in re.findall(r"\bops\.(\w+)", place) if not hasattr(ops, name)]


def test_names_without_a_place_are_those_of_models_or_of_their_configs() -> None:
    code = "".join(path.read_text() for path in READ_OR_BUILT if path.suffix == ".py")
    names = set(re.findall(r"(?<![\w./])[a-z]+(?:_[a-z]+)+(?![\w/])", " ".join(PLACES)))
    assert "fused_weights" in names
    assert not [name for name in names if not re.search(rf"\b{name}\b", code)]
