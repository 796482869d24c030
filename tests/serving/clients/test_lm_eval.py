"""lm-eval's `local-completions`: loglikelihoods are those of its `hf` model for the same checkpoint."""

from __future__ import annotations

import pytest

from tests.serving.conftest import KEY

pytest.importorskip("lm_eval")

PAIRS = [("The quick", " brown fox"), ("A", "b"), ("one two three", " four"), ("x" * 60, "yz")]


def requests_of(pairs):
    from lm_eval.api.instance import Instance

    return [
        Instance(request_type="loglikelihood", doc={}, arguments=pair, idx=index) for index, pair in enumerate(pairs)
    ]


@pytest.fixture(scope="module")
def served(url, chat_checkpoint, monkeypatch_module):
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    monkeypatch_module.setenv("OPENAI_API_KEY", KEY)
    return LocalCompletionsAPI(
        model="tiny",
        base_url=f"{url}/v1/completions",
        tokenizer_backend="huggingface",
        tokenizer=str(chat_checkpoint),
        num_concurrent=1,
        max_length=192,
        batch_size=2,
        max_retries=1,
    )


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def reference(chat_checkpoint):
    from lm_eval.models.huggingface import HFLM

    return HFLM(pretrained=str(chat_checkpoint), device="cpu", dtype="float32", max_length=192)


def test_loglikelihoods_are_those_of_hflm(served, reference):
    ours, theirs = (model.loglikelihood(requests_of(PAIRS), disable_tqdm=True) for model in (served, reference))
    assert [value for value, _ in ours] == pytest.approx([value for value, _ in theirs], abs=1e-3)
    assert [is_greedy for _, is_greedy in ours] == [is_greedy for _, is_greedy in theirs]


def test_texts_are_generated(served):
    from lm_eval.api.instance import Instance

    settings = {"max_gen_toks": 8, "until": ["\n"], "temperature": 0}
    request = Instance(request_type="generate_until", doc={}, arguments=("Hello", settings), idx=0)
    (text,) = served.generate_until([request], disable_tqdm=True)
    assert text
