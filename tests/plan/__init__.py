"""Tests of plans, against what engines have allocated."""
