"""XLA's analytical latency model: formulas, measured tables, rooflines."""
