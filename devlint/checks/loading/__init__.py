"""Rules about data loaders and their workers."""
