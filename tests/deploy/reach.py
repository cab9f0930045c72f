"""Who reaches whom, as network policies say: the part of their language that the deployment files speak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deploy.wiring import selects

if TYPE_CHECKING:
    from deploy.rendering import Object

HOME = "dip"
"""The namespace that the files are applied to."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A pod on either side of a connection.

    Parameters
    ----------
    labels
        Its labels.
    namespace
        Where it is.
    """

    labels: dict[str, str]
    namespace: str = HOME


def reaches(objects: list[Object], source: Peer, target: Peer, port: int, protocol: str = "TCP") -> bool:
    """Whether policies let a connection through: out of the one pod, and into the other."""
    policies = [each["spec"] for each in objects if each["kind"] == "NetworkPolicy"]
    return all(
        _lets(policies, inside, outside, way, port, protocol)
        for way, inside, outside in (("egress", source, target), ("ingress", target, source))
    )


def _lets(policies: list[Any], inside: Peer, outside: Peer, way: str, port: int, protocol: str) -> bool:
    """Look at one side; a pod that no policy is about is open."""
    about = [
        policy
        for policy in policies
        if inside.namespace == HOME
        and selects(policy["podSelector"], inside.labels)
        and way.capitalize() in policy["policyTypes"]
    ]
    rules = [rule for policy in about for rule in policy.get(way, [])]
    return not about or any(_fits(rule, outside, way, port, protocol) for rule in rules)


def _fits(rule: Object, outside: Peer, way: str, port: int, protocol: str) -> bool:
    ports, peers = rule.get("ports"), rule.get("to" if way == "egress" else "from")
    is_port = ports is None or {"port": port, "protocol": protocol} in ports
    return is_port and (peers is None or any(_is(peer, outside) for peer in peers))


def _is(peer: Object, outside: Peer) -> bool:
    if "ipBlock" in peer:
        return False
    if "namespaceSelector" in peer:
        right = selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": outside.namespace})
    else:
        right = outside.namespace == HOME
    return right and selects(peer.get("podSelector", {}), outside.labels)
