"""Run the engine in a process of its own."""
