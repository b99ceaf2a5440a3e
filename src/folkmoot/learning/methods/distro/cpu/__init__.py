"""DisTrO on the CPU, compiled by numba: `backend` is the entry point, the rest its parts."""
