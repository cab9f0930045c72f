"""What layers cost: from a description of a model and a known GPU to a job, and from a job to figures for people."""
