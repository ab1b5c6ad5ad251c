"""Measure a model's speed, beside what this machine's memory and arithmetic would allow."""
