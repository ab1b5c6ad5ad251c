"""Define the modules that two or more models share."""
