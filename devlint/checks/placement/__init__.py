"""Rules about where tensors and modules are."""
