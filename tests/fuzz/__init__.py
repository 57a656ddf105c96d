"""The fuzzer: mutated modules must give a module or an error, never anything else."""
