"""Puts elementwise instructions into fusions whose values fit into a scratch memory."""
