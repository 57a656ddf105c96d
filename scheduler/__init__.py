"""What collectives, GEMMs and fusions cost, and the scheduler that stands on it."""
