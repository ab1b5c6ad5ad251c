"""A model's config.json, read key by key into its own config; without torch."""
