"""Read GGUF files: their header, and its content in the form of a Hugging Face folder."""
