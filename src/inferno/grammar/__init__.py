"""Grammars of answers: what a JSON Schema or a regular expression allows, as rules over bytes."""
