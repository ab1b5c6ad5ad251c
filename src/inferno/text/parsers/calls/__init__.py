"""Find tool calls in an answer's text: how each dialect writes them, and a reader for each."""
