"""How bytes travel: between peers, and through a bucket."""
