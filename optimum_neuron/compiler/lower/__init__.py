"""Host code: what really runs a subprogram on this machine's CPU.

`choose.py` decides the level of each subprogram and says why; `aten.py` runs the FX body through ATen;
`inductor.py` compiles it ahead of time; `store.py` keeps shared objects by content, CPU and torch version;
`pool.py` compiles several at once in worker processes. Host code never travels with an artifact.
"""
