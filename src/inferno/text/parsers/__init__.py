"""Split a model's output, while it comes, into reasoning, content and tool calls."""
