"""What a member of a run computes. No network, no authority: tensors, files and bytes."""
