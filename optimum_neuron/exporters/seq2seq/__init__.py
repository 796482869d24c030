"""Models that read a source and write a target, such as T5 and BART.

`configuration.py` has the shapes, `entry.py` calls transformers' own modules with device-resident caches, `plan.py`
makes graphs of that.
"""
