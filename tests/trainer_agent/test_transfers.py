"""Shows that transfers carry any shapes in any number, and that a wrong one is an error, never a wrong tensor."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from pipelines.exchanges import Message, exchange, warm_up

if TYPE_CHECKING:
    from pipelines.processes import Workers


def test_many_transfers_of_any_size_in_flight_at_once(workers: Workers) -> None:
    messages = [Message(n, rows=(n * 37) % 400, gradient=n % 2 == 1) for n in range(60)]
    assert workers.run(exchange, 2, messages, messages) == [[True] * 60] * 2


def test_nothing_to_carry_is_a_transfer_too(workers: Workers) -> None:
    messages = [Message(0, rows=0), Message(1, rows=2), Message(2, rows=0)]
    assert workers.run(exchange, 2, messages, messages) == [[True] * 3] * 2


@pytest.mark.parametrize(
    ("sent", "expected", "said"),
    [
        ([Message(0, 4), Message(1, 4)], [Message(1, 4), Message(0, 4)], "sub-microbatch 0, to"),
        ([Message(0, 9), Message(1, 4)], [Message(1, 4), Message(0, 9)], "108 bytes, arrived"),
        ([Message(0, 4, number=6)], [Message(0, 4, number=7)], "of step 6"),
        ([Message(0, 4)], [Message(0, 4, gradient=True)], "the activation of step 0"),
        ([Message(0, 9)], [Message(0, 4)], "108 bytes, arrived, the plan says"),
        ([Message(0, 3)], [Message(0, 4)], "36 bytes, arrived, the plan says"),
    ],
    ids=["swapped", "swapped with another size", "stale", "other direction", "larger", "smaller"],
)
def test_what_the_plan_does_not_say_is_an_error_that_names_both(
    workers: Workers, sent: list[Message], expected: list[Message], said: str
) -> None:
    kind, message = workers.run(partial(exchange, awaits_sends=False), 2, sent, expected)[1]
    assert kind == "TransferMismatchError"
    assert message.startswith("rank 1, receive of the ")
    assert "with rank 0" in message
    assert said in message


def test_what_never_comes_is_an_error_within_the_timeout(workers: Workers) -> None:
    kind, message = workers.run(partial(exchange, timeout_s=1.0), 2, [], [Message(3, 4)])[1]
    assert kind == "StepTimeoutError"
    assert "receive of the activation that vision.0 on sub-microbatch 3 makes" in message
    assert "no answer within 1 s" in message


def test_what_nobody_takes_is_an_error_within_the_timeout(workers: Workers) -> None:
    kind, message = workers.run(partial(exchange, timeout_s=1.0), 2, [Message(3, 4)], [])[0]
    assert kind in ("StepTimeoutError", "PeerLostError")
    assert "rank 0, send of the activation that vision.0 on sub-microbatch 3 makes" in message
    assert "with rank 1" in message


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_pairs_are_warmed_up(workers: Workers, ranks: int) -> None:
    assert workers.run(warm_up, ranks) == [True] * ranks
