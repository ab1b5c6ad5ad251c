"""The embedded model: its files lie in this folder."""
