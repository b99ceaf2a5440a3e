"""The federation: a gRPC coordinator, a participant SDK, and weights that travel through a bucket."""
