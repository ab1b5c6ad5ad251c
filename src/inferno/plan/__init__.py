"""The plan of a model: what it will take before it is loaded, and the rules of what is chosen."""
