"""What a file means: its names, and where its tensors live."""
