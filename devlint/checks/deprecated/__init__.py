"""Rules about deprecated and removed API."""
