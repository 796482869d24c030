"""Every private part of other libraries that this package touches, with the reason and a contract.

The package imports no private name of another library, patches none, overrides none of its private methods, and
recognizes no class by its name without a row here. `docs/upstream.md` lists the rows, and `tests/upstream` checks them
on the installed releases before other tests. There is one module for each library:

    from optimum_neuron.upstream.inductor import GraphLowering, V

It knows nothing of this package.
"""
