"""Strings only: tokenizers, templates, stop strings. Imports neither torch nor the engine."""
