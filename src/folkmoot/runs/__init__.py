"""What people do with a run: serve one, join one, steer one, read what it stored."""
