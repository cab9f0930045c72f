"""What hostile clients cost a planner, and those whom it serves besides."""
