"""Lint of a model's files: what is wrong with a chat template, a tokenizer or a config."""
