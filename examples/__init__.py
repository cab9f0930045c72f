"""Programs that show DIP Planner at work: what a user copies from."""
