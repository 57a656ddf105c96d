"""The machine that a module runs on: the GPU, and how many of them are joined how."""
