"""Checkpoints on disk, and how they fill a model."""
