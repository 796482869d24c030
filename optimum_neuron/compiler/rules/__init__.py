"""The operator check: one rule for each operator family, and a report of every call that a target refuses.

`report.check_graph` is the entry point. A rule is a small module; see `base.py` for how to write one.
"""
