"""What runs beside the training loop on every rank: takes plans, agrees on them, runs them."""
