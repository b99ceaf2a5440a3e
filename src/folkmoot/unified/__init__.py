"""One job of many roles: PrimeMaster, workers and the calls and channels between them."""
