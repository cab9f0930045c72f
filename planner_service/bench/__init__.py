"""How good plans are and what they cost: suites of measurements, their results, and reports made from results alone."""
