"""Mutants of critical code: does a test notice?"""
