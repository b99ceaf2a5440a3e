"""The coordinator's side: the gRPC service, the journal of its rounds, its view of the bucket."""
