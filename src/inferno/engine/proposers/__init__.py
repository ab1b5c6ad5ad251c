"""Propose tokens in speculative decoding: a file for each kind of proposer."""
