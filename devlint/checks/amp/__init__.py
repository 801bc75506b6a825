"""Rules about mixed precision and the training loop."""
