"""Memory of a schedule: which buffers live when, and orders that need little."""
