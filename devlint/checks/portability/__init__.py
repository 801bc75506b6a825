"""Rules about code that runs on one kind of machine only."""
