"""Shows that gradients add up over replicas whatever each of them has, and in pieces of any size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pipelines.scripted import reduced

if TYPE_CHECKING:
    from pipelines.processes import Workers

# The gradients of five parameters on two replicas; every other one is of another type.
VALUES = [[1.0, None, 2.0, None, 8.0], [4.0, 16.0, None, None, 32.0]]


@pytest.mark.parametrize("bucket_bytes", [1, 20, 2**20], ids=["alone", "few", "all"])
def test_missing_gradients_count_as_zeros_and_stay_missing_where_all_miss_them(
    workers: Workers, bucket_bytes: int
) -> None:
    """The last, frozen, parameter takes no part."""
    expected = [[5.0, 5.0], [16.0, 16.0], [2.0, 2.0], None, [40.0, 40.0], None]
    assert workers.run(reduced, 2, VALUES, bucket_bytes) == [expected, expected]


def test_replicas_without_any_gradient_agree_on_that(workers: Workers) -> None:
    assert workers.run(reduced, 2, [[None], [None]], 100) == [[None, None]] * 2
