"""Keep keys and values: who holds which blocks, and how the cache lies in memory."""
