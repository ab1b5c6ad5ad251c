"""Plan a model's memory before loading, with the rules by which an engine chooses dtypes."""
