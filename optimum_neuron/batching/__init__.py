"""Serves many requests with one compiled decoder: they join and leave a batch at every step, and share a cache.

It knows programs whose cache is a pool of blocks (`engine/paged.py`), and transformers' settings of generation; models
and tokenizers are above it.

    request.py    one request and its state           blocks.py     blocks of the cache, shared by content
    scheduler.py  who gets rows and blocks            sampling.py   the next token of one request
    runner.py     runs chunks and steps               engine.py     plans, runs, and samples: one step
    candidates.py sampling from the largest logits    session.py    a thread that takes steps
    manager.py    transformers' interface             outbox.py     outputs that wait, and handlers
    settings.py   transformers' settings of the manager
    clock.py      its simulated time                  counters.py   what happened
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
