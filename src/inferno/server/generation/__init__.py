"""Turn a call's fields into the engine's requests, and the results into answers and streams."""
