"""The planner: turns a job and a batch into a plan, stores it, streams it."""
