"""XLA's latency-hiding list scheduler: starts early, dones late, within the limits."""
