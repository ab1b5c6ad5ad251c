"""Decide who computes in a step, and how many tokens; nothing here needs torch."""
