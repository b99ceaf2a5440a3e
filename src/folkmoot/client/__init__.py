"""One member of a run: an authority, an exchange and a learner, joined."""
