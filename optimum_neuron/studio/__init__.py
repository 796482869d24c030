"""A local page to estimate models, compare configurations, and browse what is compiled. All numbers are simulated.

    request.py  a form as a configuration: an estimate, its objective, and its command
    answers.py  what the page shows: estimates beside each other, comparisons, the cache, exports, profiles
    app.py      the web application, for this machine only
    server.py   runs it
    studio.js   the page's script, studio.css its style

It does not know the command line's parser.

    from optimum_neuron.studio import running_studio

    with running_studio(folder=Path(".")) as url:
        print(url)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
