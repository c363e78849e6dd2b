"""For tasks. The modules for threads, in _sync, are made from these by generate.py."""
