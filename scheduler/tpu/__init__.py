"""TPUs: their chips, the compiler's log, its scheduler's settings and memory."""
