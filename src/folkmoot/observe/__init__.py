"""What a run looks like from outside: its processes' logs, and views made of them."""
