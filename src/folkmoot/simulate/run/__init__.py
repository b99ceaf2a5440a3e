"""Worlds around the machine of a run."""
