"""The schedule checker: proves that an order is legal, without the scheduler's code."""
