"""A run's state kept by one server, journaled before anything is answered or shown."""
