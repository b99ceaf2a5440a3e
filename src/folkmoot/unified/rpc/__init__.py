"""Calls between the actors of a job: who they are is known, what they send is bounded."""
