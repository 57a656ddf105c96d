"""The fuzzers: damaged inputs must be read or refused, nothing else may happen."""
