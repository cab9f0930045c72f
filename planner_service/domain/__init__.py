"""What the planner thinks in."""
