"""Runs of the engine, observed from outside."""
