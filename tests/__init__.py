"""The same tree as src/inferno, with test_ in front."""
