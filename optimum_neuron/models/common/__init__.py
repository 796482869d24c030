"""Blocks that two or more decoder families share."""
