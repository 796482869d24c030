"""Files of this machine: written whole or not at all, read as a stranger's, kept in the user's cache.

It does not know what is in them.
"""
