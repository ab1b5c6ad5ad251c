"""Handle strings: tokenizers, templates, stop strings. Nothing here imports torch or the engine."""
