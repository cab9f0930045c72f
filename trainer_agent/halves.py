"""A backward in two halves: the gradient of the inputs now, the gradients of the parameters any time later.

Asking autograd twice, first for the inputs and then for the parameters, would run the chain of input gradients twice.
So the graph is cut where the ways to the parameters leave the ways to the inputs: the gradients that arrive at these
nodes in the input half are kept, and the weight half starts from them. The idea is that of
``torch.distributed.pipelining`` (``_backward.py``) and of Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024);
what is done otherwise here:

- parameters of a chunk whose inputs need no gradient (a first chunk, or frozen producers) get their gradients, too;
- gradients are accumulated by autograd itself, so hooks of parameters run as in ``loss.backward()``;
- every node of the weight half gets exactly what it got in the input half: a tensor's hook never counts twice, nor does
  a parameter that is used more than once;
- parameters of one dimension (norms, biases that stand alone) and those of custom functions, which compute all of their
  gradients at once, are done in the input half: holding what they need would cost more than that;
- what the weight half does not need is let go of after the input half.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import NoneType
from typing import TYPE_CHECKING

import torch
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils._pytree import tree_leaves

from trainer_agent.saved import Saved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from torch.autograd.graph import Node

    from trainer_agent.holding import SavedTensors

Gradients = tuple[torch.Tensor | None, ...]
_ALONE = Saved, torch.Tensor, torch.device, torch.dtype, int, float, NoneType


@dataclass(slots=True)
class Group:
    """Parameters whose ways to the output share nodes, and what the input half left for them.

    Parameters
    ----------
    nodes
        Where the ways to these parameters leave the ways to the inputs.
    parameters
        The parameters.
    arrived
        The gradients that arrived at each node.
    """

    nodes: list[Node]
    parameters: list[torch.Tensor]
    arrived: dict[Node, tuple[Saved | None, ...]] = field(default_factory=dict)

    @property
    def is_cheap(self) -> bool:
        """Whether its gradients cost next to nothing, or are computed anyway, in the input half."""
        flat = all(parameter.dim() <= 1 for parameter in self.parameters)
        return flat or all(isinstance(node, BackwardCFunction) for node in self.nodes)

    def accumulate(self) -> None:
        """Run the ways from its nodes to its parameters, then let go of what arrived.

        Raises
        ------
        StageInterfaceError
            A backward of the user's own wrote into a gradient that arrived here, too.
        """
        edges, gradients = [], []
        arrived = {
            node: tuple(None if held is None else held.get() for held in of_node)
            for node, of_node in self.arrived.items()
        }
        for node, of_node in arrived.items():
            for number, gradient in enumerate(of_node):
                if gradient is not None:
                    edges.append(GradientEdge(node, number))
                    gradients.append(gradient)
        if not edges:
            return
        # Where one of its nodes leads to another, what comes along that way is in what arrived already; and what a
        # tensor's hook changed is changed already.
        handles = [node.register_prehook(_instead(of_node)) for node, of_node in arrived.items()]
        try:
            torch.autograd.backward(edges, gradients, retain_graph=True, inputs=self.parameters)
        finally:
            for handle in handles:
                handle.remove()
        self.arrived.clear()


@dataclass(kw_only=True, slots=True)
class WeightHalf:
    """What is left to do after an input half.

    Parameters
    ----------
    groups
        What starts inside of the graph.
    whole
        Tensors whose graph has no way to an input, and their gradients: all of it is left.
    root
        Keeps the graph alive; holds no tensor.
    """

    groups: list[Group] = field(default_factory=list)
    whole: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    root: GradientEdge | None = None

    def run(self) -> None:
        """Accumulate the gradients of the parameters."""
        while self.groups:
            self.groups.pop().accumulate()
        if self.whole:
            tensors, gradients = zip(*self.whole, strict=True)
            self.whole.clear()
            torch.autograd.backward(tensors, gradients)
        self.root = None

    def tensors(self) -> Iterable[torch.Tensor]:
        """Iterate over the gradients that are held."""
        for group in self.groups:
            for arrived in group.arrived.values():
                yield from (held.held for held in arrived if held is not None and held.held is not None)
        for _, gradient in self.whole:
            yield gradient


def input_half(
    output: torch.Tensor, gradient: torch.Tensor, inputs: Sequence[torch.Tensor], saved: SavedTensors
) -> WeightHalf:
    """Accumulate the gradients of inputs, and prepare those of the parameters.

    Parameters
    ----------
    output
        What the graph computes; requires a gradient.
    gradient
        Its gradient.
    inputs
        Leaves of the graph; those that are used get their ``grad``.
    saved
        What the graph saved; the weight half's share of it stays.
    """
    root = get_gradient_edge(output)
    nodes = [get_gradient_edge(leaf).node for leaf in inputs]
    cut = _Cut(root.node, nodes)
    if root.node not in cut.toward_inputs:
        return WeightHalf(whole=[(output, gradient)])
    groups, used = cut.groups(), [leaf for leaf, node in zip(inputs, nodes, strict=True) if node in cut.toward_inputs]
    now = [parameter for group in groups if group.is_cheap for parameter in group.parameters]
    later = [group for group in groups if not group.is_cheap]
    handles = [node.register_prehook(_keep(group, node)) for group in later for node in group.nodes]
    try:
        with saved.noting_uses() as uses:
            torch.autograd.backward([output], [gradient], retain_graph=True, inputs=[*used, *now])
            _release_what_is_done(uses, later, cut)
    finally:
        for handle in handles:
            handle.remove()
    return WeightHalf(groups=later, root=root) if later else WeightHalf()


def _release_what_is_done(uses: Iterable[tuple[Saved, Node]], later: Sequence[Group], cut: _Cut) -> None:
    """Let go of what the input half took and the weight half will not."""
    if any(len(group.nodes) > 1 for group in later):
        # The way from one node of a group to another is run again.
        return
    needed = {node for group in later for node in group.nodes}
    if not all(map(_stands_alone, _held_by(needed | cut.behind(needed)))):
        # A layer that checkpoints itself runs again in the weight half, and takes its inputs in whatever node is first.
        return
    for saved, node in uses:
        if node not in needed:
            saved.release()


def _held_by(nodes: Iterable[Node]) -> Iterator[object]:
    """Iterate over what the hooks of saved tensors made of those of some nodes."""
    for node in nodes:
        for name in dir(node):
            if name.startswith("_raw_saved_"):
                yield from (tensor.data for tensor in tree_leaves(getattr(node, name)) if tensor is not None)


def _stands_alone(held: object) -> bool:
    """Whether what hooks made of a saved tensor can be taken without anything else that was saved."""
    return all(isinstance(part, _ALONE) for part in tree_leaves(held))


class _Cut:
    """The graph behind a node, parted into the ways to the inputs and those to the parameters alone.

    Parameters
    ----------
    root
        The node.
    inputs
        The nodes of the inputs.
    """

    def __init__(self, root: Node, inputs: Iterable[Node]) -> None:
        found = set(inputs)
        self.toward_inputs: set[Node] = set()
        # Leaves behind each node that leads to no input, and those that each node of the other kind leads to directly.
        self._behind: dict[Node, dict[Node, None]] = {}
        self._leaving: dict[Node, dict[Node, None]] = {}
        for node, children in _inputs_first(root):
            leaves: dict[Node, None] = {}
            toward = node in found
            for child in children:
                if child in self.toward_inputs:
                    toward = True
                else:
                    leaves |= self._behind[child]
            if not toward:
                self._behind[node] = leaves or ({} if _variable(node) is None else {node: None})
                continue
            self.toward_inputs.add(node)
            if leaves:
                self._leaving[node] = leaves

    def behind(self, nodes: Iterable[Node]) -> set[Node]:
        """Return all on the ways from some nodes to the parameters alone."""
        found: set[Node] = set()
        left = list(nodes)
        while left:
            for child, _ in left.pop().next_functions:
                if child is not None and child in self._behind and child not in found:
                    found.add(child)
                    left.append(child)
        return found

    def groups(self) -> list[Group]:
        """Group the parameters by the nodes where their ways leave, in an order that the graph alone decides."""
        groups: dict[Node, tuple[dict[Node, None], dict[Node, None]]] = {}
        for node, leaves in self._leaving.items():
            nodes, joined = {node: None}, dict(leaves)
            for leaf in leaves:
                if leaf in groups:
                    nodes, joined = groups[leaf][0] | nodes, groups[leaf][1] | joined
            groups |= dict.fromkeys(joined, (nodes, joined))
        distinct = {id(group): group for group in groups.values()}.values()
        return [Group(nodes=list(nodes), parameters=_variables(leaves)) for nodes, leaves in distinct]


def _inputs_first(root: Node) -> Iterator[tuple[Node, list[Node]]]:
    """Iterate over the graph behind a node, each with what it leads to, after all of that."""
    seen = {root}
    stack: list[tuple[Node, list[Node], Iterator[Node]]] = []

    def push(node: Node) -> None:
        children = [child for child, _ in node.next_functions if child is not None]
        stack.append((node, children, iter(children)))

    push(root)
    while stack:
        node, children, left = stack[-1]
        for child in left:
            if child not in seen:
                seen.add(child)
                push(child)
                break
        else:
            stack.pop()
            yield node, children


def _variables(leaves: Iterable[Node]) -> list[torch.Tensor]:
    return [variable for leaf in leaves if (variable := _variable(leaf)) is not None]


def _variable(node: Node) -> torch.Tensor | None:
    """Return the leaf tensor whose gradient a node accumulates, if it is such a node."""
    variable = None if node.next_functions else getattr(node, "variable", None)
    return variable if isinstance(variable, torch.Tensor) else None


def _keep(group: Group, node: Node) -> Callable[[Gradients], None]:
    def hook(gradients: Gradients) -> None:
        group.arrived[node] = tuple(None if gradient is None else Saved(gradient) for gradient in gradients)

    return hook


def _instead(gradients: Gradients) -> Callable[[Gradients], Gradients]:
    def hook(_: Gradients) -> Gradients:
        return gradients

    return hook
