"""A small abstract interpreter that follows tensors, modules and devices through the code of one file."""
