"""Shows that errors of the contract say which field or rank is at fault, and travel between processes."""

import pickle

import pytest
from dip.errors import CannotFitError, DipError, FieldViolation, InvalidRequestError

VIOLATIONS = (
    FieldViolation(field="job.cluster.ranks", description="is 0; allowed are 1 to 1024"),
    FieldViolation(field="", description="is empty"),
)


def test_an_invalid_request_lists_every_violation_on_a_line_of_its_own() -> None:
    error = InvalidRequestError(VIOLATIONS)
    assert str(error).splitlines() == ["job.cluster.ranks: is 0; allowed are 1 to 1024", "is empty"]


def test_an_invalid_request_without_a_violation_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="violations is empty"):
        InvalidRequestError(())


def test_cannot_fit_names_rank_need_and_limit() -> None:
    message = str(CannotFitError(rank=3, needed_bytes=1001, available_bytes=900))
    assert "rank 3" in message
    assert "1001 bytes" in message
    assert "900" in message


@pytest.mark.parametrize(
    "error", [InvalidRequestError(VIOLATIONS), CannotFitError(rank=1, needed_bytes=7, available_bytes=5)]
)
def test_errors_keep_their_fields_between_processes(error: DipError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
