"""Facts of a module that passes need: order, calls, effects, equality, differences."""
