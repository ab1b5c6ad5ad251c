"""What the outside sees of an engine."""
