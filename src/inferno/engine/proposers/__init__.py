"""Propose tokens in speculative decoding, a file for each who does."""
