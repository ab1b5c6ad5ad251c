"""inferno behind HTTP: an OpenAI-compatible server. The edge guards it, the rest answers."""
