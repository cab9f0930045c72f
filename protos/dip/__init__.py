"""What the planner's contract means, in plain Python on the protobuf messages alone."""
