"""What can go wrong with a request: every error that the contract package raises."""

from dataclasses import dataclass


class DipError(Exception):
    """Root of the errors that the contract package and its users raise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldViolation:
    """One fault of one field of a request.

    Parameters
    ----------
    field
        Path of the field from the request's root, in proto style: ``job.model.modules[1].name``; entries of map
        fields are named by their key: ``job.options.segments["vision"]``. Empty for the request as a whole.
    description
        What the field held and what is allowed.
    """

    field: str
    description: str

    def __str__(self) -> str:
        return f"{self.field}: {self.description}" if self.field else self.description


class InvalidRequestError(DipError):
    """A request that breaks the contract.

    Parameters
    ----------
    violations
        Every fault that was found, at least one.
    """

    def __init__(self, violations: tuple[FieldViolation, ...]) -> None:
        if not violations:
            raise ValueError("violations is empty; an invalid request has at least one")
        self.violations = violations
        super().__init__("\n".join(map(str, violations)))

    def __reduce__(self) -> tuple[type["InvalidRequestError"], tuple[tuple[FieldViolation, ...]]]:
        """Travel between processes with the violations themselves, not their text."""
        return type(self), (self.violations,)


class CannotFitError(DipError):
    """A batch whose tasks need more memory than a rank may hold, however they are ordered and recomputed.

    Parameters
    ----------
    rank
        The first rank that is short of memory.
    needed_bytes
        The least that this rank needs.
    available_bytes
        What ``cluster.memory_bytes`` allows it.
    """

    def __init__(self, *, rank: int, needed_bytes: int, available_bytes: int) -> None:
        self.rank = rank
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes
        super().__init__(f"rank {rank} needs at least {needed_bytes} bytes, memory_bytes allows it {available_bytes}")

    def __reduce__(self) -> tuple[object, tuple[type["CannotFitError"], int, int, int]]:
        """Travel between processes: the constructor takes keywords only."""
        return _cannot_fit, (type(self), self.rank, self.needed_bytes, self.available_bytes)


def _cannot_fit(kind: type[CannotFitError], rank: int, needed_bytes: int, available_bytes: int) -> CannotFitError:
    return kind(rank=rank, needed_bytes=needed_bytes, available_bytes=available_bytes)
