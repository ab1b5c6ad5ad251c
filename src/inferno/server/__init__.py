"""Serve inferno over HTTP, compatible with OpenAI: http/ receives requests, the rest answers."""
