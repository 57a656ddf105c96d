"""A simulated run of a scheduled module: what is exposed, and why."""
