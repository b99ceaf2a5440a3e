"""The participant's side: what its owner writes, the loop around it, and its view of the bucket."""
