"""Rules about what a module registers, saves and loads."""
