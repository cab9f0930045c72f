"""Shows that settings that cannot be measured are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from planner_service.bench.settings import Settings


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"configs": ("vlm-s", "vlm-xxl")}, "configs names 'vlm-xxl', must be of vlm-s, "),
        ({"configs": ()}, "configs is empty, must name at least one of vlm-s"),
        ({"mixes": ("radio",)}, "mixes names 'radio', must be of web, documents, text, waves"),
        ({"seeds": ()}, "seeds is empty"),
        ({"seeds": (0, -1)}, "seeds is -1, must be at least 0"),
        ({"microbatches": 0}, "microbatches is 0, must be at least 1"),
        ({"budget_ms": 0}, "budget_ms is 0, must be at least 1"),
        ({"cores": 0}, "cores is 0, must be at least 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Settings(**given)


def test_settings_are_written_as_they_are() -> None:
    written = Settings(seeds=(3,), cores=2).json()
    assert written["seeds"] == [3]
    assert written["configs"] == ["vlm-s", "vlm-m", "vlm-l", "t2v-s", "t2v-l"]
    assert Settings(**{k: tuple(v) if isinstance(v, list) else v for k, v in written.items()}).json() == written
