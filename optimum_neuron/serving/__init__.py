"""A server that speaks OpenAI's protocol, over the engine of continuous batching.

    deployment.py  models and endpoints, without HTTP     app.py        paths, streams; bodies.py  JSON and forms
    models.py      loading, names, adapters               gate.py       keys, sizes, identities
    generator.py   from asyncio to the engine             problems.py   errors in OpenAI's form
    sampling.py    parameters to settings                 protocol/     bodies of requests
    chat.py, completions.py        answers of endpoints   conversation.py  from messages to tokens
    templates.py   chat templates, with limits            connection.py    limits of connections
    text.py        detokenizing, stop strings             parsing.py    reasoning and tool calls
    logits.py, structured.py       processors of one request
    metrics.py     Prometheus                             server.py     runs it

Needs the extra `serve`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
