"""GGUF files: their header, and what it says in the words of a Hugging Face folder."""
