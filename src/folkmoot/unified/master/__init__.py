"""PrimeMaster: the process that holds a job, and can be killed at any moment."""
