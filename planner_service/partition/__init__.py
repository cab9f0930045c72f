"""Which rank holds which layers, chosen before training."""
