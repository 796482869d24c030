import dataclasses
import inspect

import pytest
from transformers import GenerationMixin, LlamaForCausalLM
from transformers.generation import GenerateDecoderOnlyOutput
from transformers.modeling_outputs import CausalLMOutputWithPast

from optimum_neuron import (
    NeuronModelForCausalLM,
    NeuronModelForImageTextToText,
    NeuronModelForMultimodalLM,
    NeuronModelForSeq2SeqLM,
    NeuronModelForSpeechSeq2Seq,
)
from optimum_neuron.upstream.cache_argument import CACHE, cache_keyword, takes_cache

KINDS = (
    NeuronModelForCausalLM,
    NeuronModelForImageTextToText,
    NeuronModelForMultimodalLM,
    NeuronModelForSeq2SeqLM,
    NeuronModelForSpeechSeq2Seq,
)


@takes_cache
def forward(ids, cache=None, labels=None):
    return ids, cache, labels


def test_the_name_is_that_of_transformers():
    for theirs in (LlamaForCausalLM.forward, GenerationMixin.prepare_inputs_for_generation):
        assert CACHE in inspect.signature(theirs).parameters
    for theirs in (CausalLMOutputWithPast, GenerateDecoderOnlyOutput):
        assert CACHE in {field.name for field in dataclasses.fields(theirs)}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_models_take_the_cache_by_that_name(kind):
    names = set(inspect.signature(kind.forward).parameters)
    assert names & {"cache", "past_key_values"} == {CACHE}


def test_the_value_arrives_by_keyword_and_by_place():
    assert forward(1, **{CACHE: 2}) == forward(1, 2) == (1, 2, None)
    assert forward(1, labels=3) == (1, None, 3)


@pytest.mark.skipif(CACHE == "past_key_values", reason="transformers knows one name")
def test_the_older_name_works_with_a_warning():
    with pytest.warns(FutureWarning):
        assert forward(1, past_key_values=2) == (1, 2, None)


def test_code_of_a_checkpoint_may_have_the_older_name():
    assert cache_keyword(lambda input_ids, past_key_values=None: None) == "past_key_values"
    assert cache_keyword(forward) == CACHE
    assert cache_keyword(lambda input_ids: None) is None
