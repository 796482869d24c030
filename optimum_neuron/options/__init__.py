"""Options of an export: how they are declared, the configurations that have them, and checks of their values.

It does not depend on models or on the compiler.
"""
