"""Checks: what is compared at each checkpoint, and the errors that rounding allows."""
