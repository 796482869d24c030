"""The vendor's name for the kernel language."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("sdk")


def test_kernel_runs_under_the_names_of_the_vendor():
    import nki
    import nki.isa as nisa
    import nki.language as nl

    @nki.jit
    def double(x):
        tile, out = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
        nl.store(out, tile)
        return out

    x = np.arange(256, dtype=np.float32).reshape(128, 2)
    np.testing.assert_array_equal(nki.simulate(double)(x), 2 * x)
    assert nki.compare(nki.analyze(double, x), nki.analyze(double, x)).speedup == 1
    with pytest.raises(nisa.NkiValidationError):
        nki.simulate(double)(np.ones((256, 2), dtype=np.float32))


def test_older_kernel_runs_under_the_names_of_the_vendor():
    from neuronxcc import nki
    from neuronxcc.nki import isa as nisa, language as nl

    @nki.jit
    def double(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        i_p, i_f = nl.arange(128)[:, None], nl.arange(2)[None, :]
        nl.store(out[i_p, i_f], value=nisa.tensor_scalar(nl.load(x[i_p, i_f]), np.multiply, 2.0))
        return out

    x = np.arange(256, dtype=np.float32).reshape(128, 2)
    np.testing.assert_array_equal(nki.simulate_kernel(double, x), 2 * x)
    np.testing.assert_array_equal(double[nl.nc(2)](x), 2 * x)


def test_kernels_find_enumerations_and_dtypes_where_they_import_them():
    import nki
    import nki.dtype as nt
    import nki.isa as nisa
    import nki.language as nl
    from nki.isa.constants import dge_mode, oob_mode
    from nki.typing import tensor

    assert (nt.bfloat16, oob_mode.skip, dge_mode.none) == (nl.bfloat16, nisa.oob_mode.skip, nisa.dge_mode.none)
    assert nki.dtype is nt and tensor[128, 4] is tensor
    assert nl.tile_size.sbuf_size_bytes == 128 * nl.tile_size.sbuf_fmax_bytes == 512 * nl.tile_size.sbuf_fmax
