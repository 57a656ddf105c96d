"""Times that a profiler measured: traces read, matched with instructions, compared."""
