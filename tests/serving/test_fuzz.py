"""Five hundred wrong requests have clear errors and change nothing; `python -m benchmarks fuzz` sends more."""

from __future__ import annotations

import asyncio
import logging

from tests.serving.conftest import KEY
from tests.serving.fuzz import fuzz
from tests.serving.test_app import idle


def test_wrong_requests_are_errors_of_the_client(url, client, generator, caplog):
    def answer():
        return client.completions.create(model="tiny", prompt="Hello", max_tokens=8, temperature=0).choices[0].text

    before = answer()
    with caplog.at_level(logging.ERROR, logger="optimum_neuron"):
        report = asyncio.run(fuzz(url, number=500, seed=0, models=["tiny"], api_key=KEY))
    assert report.failures == []
    assert report.statuses[400] > 200 and report.statuses[200] > 20
    assert caplog.records == []
    assert idle(generator)
    assert generator.manager.engine.pool.num_used == 0
    assert answer() == before
