"""What passes ask about a module: order, calls, effects, equality, differences."""
