"""A model as one safetensors file, read and written in blocks: both sides of the bucket use it."""
