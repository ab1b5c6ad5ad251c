"""Propose tokens in speculative decoding: a file for each way to find them."""
