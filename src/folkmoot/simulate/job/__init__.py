"""Worlds around the machine of a job."""
