"""Modules that two or more models share."""
