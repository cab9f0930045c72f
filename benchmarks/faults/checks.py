"""What must hold of a run whatever happened: each check returns a line for each violation."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from benchmarks.faults import checkpoints
from benchmarks.faults.model import Batch
from benchmarks.faults.reference import Reference

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import torch

    from benchmarks.faults.messages import Executed
    from benchmarks.faults.start import Start

LOSS_TOLERANCE: Final = 1e-9
# Of a worker that did not come to its start: the run itself killed it.
_OWN_DOING = "ended with signal 9"
_TROUBLE = re.compile(r"^\S+ \S+ (ERROR|CRITICAL) |^Traceback \(most recent call last\)|^Fatal Python error", re.M)


def executions(
    executed: Iterable[Executed], *, places: Sequence[tuple[int, int]], first_iteration: int, killed: bool
) -> list[str]:
    """Check that every rank of one attempt ran every iteration once, in order, with one digest in each replica.

    Parameters
    ----------
    executed
        What the ranks said, each in its own order.
    places
        Replica and rank of all processes.
    first_iteration
        Where the attempt began.
    killed
        Whether its processes were killed: in the middle of an iteration some have run it already.
    """
    by_place: dict[tuple[int, int], list[int]] = {place: [] for place in places}
    digests: dict[tuple[int, int], set[bytes]] = defaultdict(set)
    attempts = set()
    for one in executed:
        attempts.add(one.attempt)
        by_place[one.replica, one.rank].append(one.iteration)
        digests[one.replica, one.iteration].add(one.digest)
    found = [f"ranks disagree on the attempt: {sorted(attempts)}"] if len(attempts) > 1 else []
    for (replica, rank), iterations in by_place.items():
        wanted = list(range(first_iteration, first_iteration + len(iterations)))
        if iterations != wanted:
            strange = next(i for i, pair in enumerate(zip(iterations, wanted, strict=True)) if len(set(pair)) > 1)
            found.append(
                f"replica {replica}, rank {rank} ran iteration {iterations[strange]} in place of {wanted[strange]}"
            )
    lengths = {len(iterations) for iterations in by_place.values()}
    if max(lengths) - min(lengths) > killed:
        found.append(f"some ranks ran {min(lengths)} iterations, others {max(lengths)}")
    found += [
        f"replica {replica} ran iteration {iteration} with {len(those)} digests"
        for (replica, iteration), those in digests.items()
        if len(those) > 1
    ]
    return found


def losses(starts: Sequence[Start], *, replicas: int) -> list[str]:
    """Check every loss against ordinary training in one process, which resumes where the starts did."""
    found: list[str] = []
    saved: dict[tuple[int, int], Mapping[str, torch.Tensor]] = {}
    for start in starts:
        reference = Reference()
        if start.resumed is not None:
            reference.load(saved[start.resumed, start.first_iteration])
        said: dict[int, set[float]] = defaultdict(set)
        for one in start.executed:
            said[one.iteration].add(one.loss)
        for iteration in sorted(said):
            if iteration % checkpoints.EVERY == 0:
                saved[start.number, iteration] = reference.parameters()
            batches = [Batch.draw(seed=start.number, replica=r, iteration=iteration) for r in range(replicas)]
            wanted = reference.step(batches)
            found += [
                f"start {start.number}, iteration {iteration}: loss {loss!r}, ordinary training has {wanted!r}"
                for loss in said[iteration]
                if not math.isclose(loss, wanted, rel_tol=LOSS_TOLERANCE)
            ]
    return found


def logs(by_name: Mapping[str, str]) -> list[str]:
    """Check that nobody wrote of errors, but of those that were brought about."""
    return [f"{name}: {line}" for name, text in by_name.items() for line in _troubles(text)]


def counted(found: Sequence[str], *, most: int = 20) -> list[str]:
    """Return the violations, with repetitions counted and no more than can be read."""
    lines = [f"{line} ({count} times)" if count > 1 else line for line, count in Counter(found).items()]
    return [*lines[:most], *([f"and {len(lines) - most} more"] if len(lines) > most else [])]


def _troubles(text: str) -> Iterator[str]:
    for match in _TROUBLE.finditer(text):
        lines = text[match.start() :].splitlines()
        if not lines[0].endswith(_OWN_DOING):
            yield " | ".join(lines[:30])[:3000]
