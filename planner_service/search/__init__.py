"""Finding the schedule of one batch: decoders, local search, CP-SAT, bounds, and the portfolio that runs them."""
