"""Read a model's config.json, key by key, into our own config, without torch."""
