"""What tests of planted faults share."""

from __future__ import annotations

import pytest

from tests.verify.planted import Folders


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory)
