"""The user's data loader, read a few batches ahead so that the planner sees them before they are trained on."""

from __future__ import annotations

from collections import deque
from collections.abc import Sized
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dip.planner.v1 import planner_pb2 as pb

Batch = TypeVar("Batch")

DEFAULT_LOOK_AHEAD = 2


class IterationBook(Protocol):
    """Numbers the iterations and knows what each trains on: the agent, as its loaders see it."""

    def begin_at(self, iteration: int | None) -> None:
        """Let the next announced batch have this number; None: go on after the last."""

    def announce(self, metadata: pb.Batch) -> int:
        """Number the next batch, have it planned, and return the number."""

    def hand_out(self, iteration: int, batch: object) -> None:
        """Note that the training loop gets this batch now."""

    def abandon(self, iterations: Iterable[int]) -> None:
        """Note that announced batches will not be trained on."""


class PlannedLoader(Generic[Batch]):
    """Yields the user's own batches, in order, while those to come are planned.

    Parameters
    ----------
    book
        The agent.
    loader
        The user's loader, the same on all ranks of a replica. Read ``look_ahead`` batches ahead, so it must not reuse
        the memory of a batch for the next.
    describe
        Makes the metadata of a batch; see `TrainerAgent.wrap_loader`.
    look_ahead
        Batches that are known to the planner beyond the one that is trained on.
    start_iteration
        Number of the first batch; None: after the last that the agent knows.
    """

    def __init__(
        self,
        book: IterationBook,
        loader: Iterable[Batch],
        describe: Callable[[Batch], pb.Batch],
        *,
        look_ahead: int = DEFAULT_LOOK_AHEAD,
        start_iteration: int | None = None,
    ) -> None:
        if look_ahead < 0:
            raise ValueError(f"look_ahead: {look_ahead}; must be 0 or more batches")
        if start_iteration is not None and start_iteration < 0:
            raise ValueError(f"start_iteration: {start_iteration}; must be 0 or more")
        self._book = book
        self._loader = loader
        self._describe = describe
        self._look_ahead = look_ahead
        self._start_iteration = start_iteration

    def __iter__(self) -> Iterator[Batch]:
        """Read the loader from its beginning; iterations are numbered on from one epoch to the next."""
        self._book.begin_at(self._start_iteration)
        self._start_iteration = None
        ahead: deque[tuple[int, Batch]] = deque()
        try:
            for batch in self._loader:
                ahead.append((self._book.announce(self._describe(batch)), batch))
                if len(ahead) > self._look_ahead:
                    yield self._next(ahead)
            while ahead:
                yield self._next(ahead)
        finally:
            self._book.abandon([iteration for iteration, _ in ahead])

    def __len__(self) -> int:
        """Return the number of batches of an epoch, where the user's loader knows it."""
        if not isinstance(self._loader, Sized):
            raise TypeError(f"the wrapped {type(self._loader).__name__} has no length")
        return len(self._loader)

    def _next(self, ahead: deque[tuple[int, Batch]]) -> Batch:
        iteration, batch = ahead.popleft()
        self._book.hand_out(iteration, batch)
        return batch
