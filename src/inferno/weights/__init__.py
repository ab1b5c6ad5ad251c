"""Read checkpoints on disk, and fill models from them."""
