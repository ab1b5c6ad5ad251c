"""Describe the routes: the OpenAPI document and the reference page."""
