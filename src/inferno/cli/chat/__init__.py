"""The modules of `inferno play`, a conversation with a model in a terminal."""
