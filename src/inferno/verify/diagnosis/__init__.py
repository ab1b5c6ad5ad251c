"""Diagnosis of the first failure: where it is, why, and what to do."""
