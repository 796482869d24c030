"""Words, environment, and settings of the process: what every other package may import, module by module.

It does not depend on torch, models, or files: those have `options` and `files`.
"""
