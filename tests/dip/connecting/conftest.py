"""What tests of connections need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)
