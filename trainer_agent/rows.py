"""Rows of instances: taking some of a producer's out for a consumer, and adding consumers' gradients up again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainer_agent.stages import GatheredResults

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainer_agent.program import CellPlan, Edge


def take_rows(output: torch.Tensor, edge: Edge, rows: Sequence[int]) -> torch.Tensor:
    """Take what travels along an edge out of its producer's output.

    Parameters
    ----------
    output
        ``[sum(rows), *features]``.
    edge
        The edge.
    rows
        Rows of each of the producer's instances.

    Returns
    -------
    Tensor
        ``output`` itself where all of it travels, else a copy of the rows.
    """
    if edge.positions is None or len(edge.positions) == len(rows):
        return output
    pieces = torch.split(output, list(rows))
    return torch.cat([pieces[position] for position in edge.positions])


def add_gradients(output: torch.Tensor, work: CellPlan, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    """Add up the gradients that the consumers of a cell's output return.

    Parameters
    ----------
    output
        The output, for its shape.
    work
        The cell; ``gradients`` belong to its ``outputs``, in their order.

    Returns
    -------
    Tensor
        Shaped as ``output``; the only gradient itself where there is one that covers all rows.
    """
    edges = work.outputs
    if len(edges) == 1 and gradients[0].shape == output.shape:
        return gradients[0]
    total = torch.zeros_like(output)
    pieces = torch.split(total, list(work.result_rows))
    for edge, gradient in zip(edges, gradients, strict=True):
        if edge.positions is None:
            total += gradient
            continue
        for position, rows in zip(edge.positions, torch.split(gradient, list(edge.rows)), strict=True):
            pieces[position].add_(rows)
    return total


def gather_results(
    names: Iterable[str], edges: Sequence[Edge], arrived: Sequence[torch.Tensor]
) -> dict[str, GatheredResults]:
    """Sort what arrived for the first chunk of a module by module, sample and instance.

    Parameters
    ----------
    names
        All input modules of the consumer.
    edges, arrived
        For each producing sub-microbatch, the edge and the tensor.
    """
    found: dict[str, dict[tuple[int, int], torch.Tensor]] = {name: {} for name in names}
    for edge, tensor in zip(edges, arrived, strict=True):
        for instance, rows in zip(edge.instances, torch.split(tensor, list(edge.rows)), strict=True):
            found[edge.producer.module][instance.sample, instance.index] = rows
    return {name: GatheredResults(rows) for name, rows in found.items()}
