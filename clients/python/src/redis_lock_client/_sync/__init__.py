"""For threads. Made from _async by generate.py, but for runtime.py."""
