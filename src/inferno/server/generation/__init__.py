"""A call that generates: from its fields to the engine's requests, and back as streams."""
