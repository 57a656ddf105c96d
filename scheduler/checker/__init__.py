"""The schedule checker: proves an order legal, sharing no code with the scheduler."""
