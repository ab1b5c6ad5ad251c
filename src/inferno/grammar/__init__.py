"""Turn JSON Schemas and regular expressions into grammars of answers: rules over bytes."""
