"""The federation: gRPC coordinator, participant SDK, and weights that travel through a bucket."""
