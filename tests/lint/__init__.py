"""Tests of the lint of models, on files with one mistake each."""
