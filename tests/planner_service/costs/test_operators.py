"""Shows that an operator takes the longest of its arithmetic, its traffic and its exchange, after a fixed time."""

from __future__ import annotations

import pytest

from planner_service.costs.gpus import known_gpus
from planner_service.costs.operators import Device, Efficiency, Operator

DEVICE = Device(
    product_flop=100.0,
    attention_flop=100.0,
    memory_bytes=10.0,
    exchange_bytes=5.0,
    hop_bytes=5.0,
    host_bytes=1.0,
    overlap=1.0,
    launch_us=3.0,
    collective_us=8.0,
)


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (Operator(flop=200.0, bytes_once=40.0, bytes_each=1.0), 3 + 2 * 7),  # arithmetic: 14 us, traffic: 4.7 us
        (Operator(flop=20.0, bytes_once=40.0, bytes_each=1.0), 3 + 4.7),
        (Operator(bytes_each=20.0), 3 + 2 * 7),
        (Operator(exchanged=15.0), 8 + 3 * 7),
    ],
)
def test_the_longest_counts(operator: Operator, expected: float) -> None:
    assert operator.time_us(DEVICE, 7) == pytest.approx(expected)


def test_a_device_reaches_a_share_of_its_data_sheet() -> None:
    efficiency = Efficiency(products=0.5, attention=0.25, memory=0.8, nvlink=0.5, network=0.5, host=0.5)
    device = Device.of(known_gpus()["H100"], efficiency, tensor_parallel=4, ranks=4)
    assert device.product_flop == pytest.approx(0.5 * 989e12 / 1e6)
    assert device.attention_flop == pytest.approx(0.25 * 989e12 / 1e6)
    assert device.memory_bytes == pytest.approx(0.8 * 3350e9 / 1e6)
    assert device.exchange_bytes == pytest.approx(0.5 * 450e9 / 1e6)
    assert device.host_bytes == pytest.approx(0.5 * 64e9 / 1e6)


@pytest.mark.parametrize(
    ("tensor_parallel", "ranks", "exchange", "hop"),
    [(4, 2, 450, 450), (8, 1, 450, 450), (4, 4, 450, 50), (16, 2, 50, 50)],
)
def test_what_leaves_a_node_takes_the_network(tensor_parallel: int, ranks: int, exchange: int, hop: int) -> None:
    whole = Efficiency(nvlink=1.0, network=1.0)
    device = Device.of(known_gpus()["H100"], whole, tensor_parallel=tensor_parallel, ranks=ranks)
    assert (device.exchange_bytes, device.hop_bytes) == (1e3 * exchange, 1e3 * hop)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"products": 0.0}, "products is 0.0, must be from 0.001 to 1"),
        ({"memory": 1.5}, "memory is 1.5, must be from 0.001 to 1"),
        ({"host": float("nan")}, "host is nan, must be from 0.001 to 1"),
        ({"overlap": 1.1}, "overlap is 1.1, must be from 0 to 1"),
        ({"launch_us": -1.0}, "launch_us is -1.0, must be from 0"),
        ({"collective_us": 1e9}, "collective_us is 1000000000.0, must be from 0 to 1,000,000"),
    ],
)
def test_efficiencies_that_cannot_be(change: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=r"must be") as raised:
        Efficiency(**change)
    assert says in str(raised.value)
