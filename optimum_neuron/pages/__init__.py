"""Self-contained pages of HTML: text, tables, and plots of results as plain data. No address in them is fetched.

    markup.py       documents, sections, tables, cards; page.css is their style
    quantities.py   names and units of numbers, for people
    page.py         a page that collects sections and plots; plots.js draws them with Observable Plot
    estimates.py    estimates, comparisons, training
    capacity.py     capacity plans and sweeps
    reports.py      buckets, checks, moves, benchmarks
    notebook.py     the same pages in a notebook

Observable Plot and D3 (`vendor/`, ISC) are embedded: 0.5 MB a page. uPlot has 0.05 MB but no scatter plots with
intervals, Vega-Lite 0.8 MB, plotly.js 3.5 MB; matplotlib installs 40 MB, and its images have no tooltips.

The pages take the dictionaries of `--json`, so this package knows neither models nor the simulator.

    Path("estimate.html").write_text(estimate_page(estimate(model).to_dict()))
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
