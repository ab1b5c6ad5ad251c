"""Turn logits into tokens."""
