"""Shows which process is which, and that errors of torch.distributed come out with rank, action and peer."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from pipelines.scripted import place

from trainer_agent.errors import PeerLostError, StepTimeoutError, TransferError
from trainer_agent.mesh import Mesh
from trainer_agent.transfers import naming

if TYPE_CHECKING:
    from pipelines.processes import Workers


def test_ranks_of_a_replica_stand_together(workers: Workers) -> None:
    assert workers.run(place, 4, 2) == [
        (0, 0, [0, 1], [0, 2]),
        (1, 0, [0, 1], [1, 3]),
        (0, 1, [2, 3], [0, 2]),
        (1, 1, [2, 3], [1, 3]),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((2, 2), "replicas: 2; must divide the 3 processes of the job"),
        ((2, None), "replicas: 2; must divide the 3 processes of the job"),
        ((0, None), "replicas: 0; must divide"),
        ((3, 2), "ranks: 2; 3 replicas of them must be the 3 processes"),
        ((1, 4), "ranks: 4; 1 replicas of them must be the 3 processes"),
    ],
)
def test_processes_that_do_not_fill_the_replicas(
    workers: Workers, arguments: tuple[int, int | None], said: str
) -> None:
    for found in workers.run(place, 3, *arguments):
        assert said in found


def test_a_program_that_was_not_started_by_torchrun_is_told_so() -> None:
    with pytest.raises(ValueError, match=r"start the program with torchrun, and call .*init_process_group"):
        Mesh.create()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[gloo/unbound_buffer.cc:78] Timed out waiting 3000ms for recv operation to complete", StepTimeoutError),
        ("[gloo/pair.cc:553] Connection closed by peer [127.0.0.1]:1", PeerLostError),
        ("Application timeout caused pair closure", PeerLostError),
    ],
)
def test_what_gloo_raises_gets_a_name(text: str, kind: type[TransferError]) -> None:
    def fail() -> None:
        with naming(2, 5, "send of something", timedelta(seconds=3)):
            raise RuntimeError(text)

    with pytest.raises(kind, match=r"rank 2, send of something, with rank 5: ") as caught:
        fail()
    assert isinstance(caught.value, TransferError)
    assert (caught.value.rank, caught.value.peer, caught.value.action) == (2, 5, "send of something")
