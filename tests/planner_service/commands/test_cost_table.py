"""Shows what the tables of costs say of modules that have no work, of ways, and of ranks alike and unlike."""

from __future__ import annotations

from dataclasses import replace

from planner_service.commands.cost_table import cost_table
from planner_service.costs.account import ChunkRange, JobCost, ModuleCost, RankCost, WayCost

STORE = WayCost(
    name="store",
    forward_us=1_000_000,
    backward_input_us=2_000_500,
    backward_weight_us=500_000,
    kept_bytes=5_000_000_000,
    split_kept_bytes=5_000_000_000,
)
RECOMPUTE = replace(STORE, name="recompute", backward_input_us=3_000_500, kept_bytes=1_000_000)
MODULE = ModuleCost(
    name="language",
    num_layers=32,
    units=65_536,
    largest_units=8192,
    instance_units=1024.4,
    share=1.0,
    static_bytes=31_400_000_000,
    efficient_units=3100,
    ways=(STORE, RECOMPUTE),
)


def rank(number: int, total_us: int, memory_bytes: int = 0) -> RankCost:
    chunks = (
        ChunkRange(module="language", first_layer=8 * number, last_layer=8 * number + 3),
        ChunkRange(module="language", first_layer=8 * number + 4, last_layer=8 * number + 7),
    )
    return RankCost(
        rank=number,
        chunks=chunks,
        module_us={"language": total_us},
        total_us=total_us,
        share=0.5,
        static_bytes=7_000_000_000,
        memory_bytes=memory_bytes,
    )


def lines(*ranks: RankCost, module: ModuleCost = MODULE) -> list[str]:
    """Return the lines of the tables, their columns one space apart."""
    return [
        " ".join(line.split())
        for line in cost_table(JobCost(microbatches=8, modules=(module,), ranks=ranks)).splitlines()
    ]


def test_times_are_milliseconds_and_sizes_readable() -> None:
    told = lines(rank(0, 1_500_000), rank(1, 1_500_000))
    assert "language 32 65,536 1,000.0 2,000.5 500.0 100.0% 31.4 GB" in told
    assert "language 8,192 store 1 5.00 GB 5.00 GB" in told
    assert "recompute 1.29 1.00 MB 5.00 GB" in told
    assert "language 3,100 4 1,024" in told


def test_ranks_name_their_layers_and_what_they_may_hold() -> None:
    told = lines(rank(0, 1_500_000), rank(1, 1_500_000, memory_bytes=80_000_000_000))
    assert told[-4] == "0 1,500.0 1,500.0 50.0% 7.00 GB no limit language 0-3, language 4-7"
    assert told[-3] == "1 1,500.0 1,500.0 50.0% 7.00 GB 80.0 GB language 8-11, language 12-15"
    assert told[-1] == "all ranks have as much to do"


def test_ranks_unlike_the_others_are_named() -> None:
    told = lines(rank(0, 1_000_000), rank(1, 3_000_000, memory_bytes=6_000_000_000))
    assert "rank 1 has 50.0% more to do than the mean" in told
    assert "rank 1 cannot hold its layers: 1.00 GB too much before any activation" in told


def test_a_module_without_work() -> None:
    nothing = replace(STORE, forward_us=0, backward_input_us=0, backward_weight_us=0, kept_bytes=0, split_kept_bytes=0)
    idle = replace(
        MODULE, units=0, largest_units=0, instance_units=0.0, share=0.0, ways=(nothing, replace(nothing, name="lean"))
    )
    told = lines(rank(0, 0), rank(1, 0), module=idle)
    assert "lean - 0 B 0 B" in told
    assert "language 3,100 - -" in told
    assert told[-1] == "all ranks have as much to do"
