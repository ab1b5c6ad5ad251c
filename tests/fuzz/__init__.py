"""Mutated models by the thousand: see `run`."""
