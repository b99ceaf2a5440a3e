"""A model as one safetensors file, read and written in blocks; both sides use it."""
