"""inferno behind HTTP: an OpenAI-compatible server. http/ receives, the rest answers."""
