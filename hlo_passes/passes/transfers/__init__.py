"""Passes over collective-permutes, sends and recvs."""
