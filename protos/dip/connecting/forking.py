"""Keeps gRPC from crashing a data loader's forked workers; loaded before gRPC is, which reads this once.

gRPC's own fork handlers, on by default, crash the child of a process that has a stream open (grpcio 1.85: "skipping
fork() handlers", then a segmentation fault). Without them a child is safe as long as it leaves gRPC alone, as the agent
does: see `trainer_agent.client.PlannerClient`. Whoever sets the variable keeps what they set; a program that imports
grpc before trainer_agent and forks data loaders has to set it itself.
"""

import os

GRPC_FORK_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"

os.environ.setdefault(GRPC_FORK_SUPPORT, "0")
