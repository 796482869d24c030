"""Structured output: a grammar that an answer must follow, as a logits processor of one request.

llguidance compiles JSON schemas, regular expressions, and grammars, and says which tokens may come next. This module
does not know HTTP: `grammar_of` reads the constraints of a body, `Grammars` compiles them for a tokenizer.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import torch
from transformers import LogitsProcessor

from ..base.transformers_types import PreTrainedTokenizerBase
from ..errors import ConfigError, RequestError
from .protocol import MAX_SCHEMA

if TYPE_CHECKING:
    from .protocol import Generation

_HINT = "Install it with: pip install 'optimum-neuron-sim[serve]'"


def grammar_of(body: Generation) -> str | None:
    """Return the grammar that a body asks for, in llguidance's form, or None."""
    found = [grammar for grammar in (_of_format(body), _of_vllm(body)) if grammar is not None]
    if len(found) > 1:
        raise RequestError("The request has several constraints.", hint="Send one of them.", status=400)
    return found[0] if found else None


def _of_format(body: Generation) -> str | None:
    form = body.response_format
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return schema_grammar({"type": "object"}, "response_format")
    assert form.json_schema is not None, "checked by the body"
    return schema_grammar(form.json_schema.schema_, "response_format.json_schema.schema")


def _of_vllm(body: Generation) -> str | None:
    """vLLM's two spellings: `structured_outputs`, and `guided_...` before it."""
    outputs = body.structured_outputs
    fields: dict[str, Any] = {
        "json": body.guided_json if outputs is None else outputs.json_,
        "regex": body.guided_regex if outputs is None else outputs.regex,
        "choice": body.guided_choice if outputs is None else outputs.choice,
        "grammar": body.guided_grammar if outputs is None else outputs.grammar,
        "json_object": None if outputs is None or not outputs.json_object else {"type": "object"},
    }
    given = {name: value for name, value in fields.items() if value is not None}
    if len(given) > 1:
        raise RequestError(f"The request has several constraints: {', '.join(given)}.", hint="Send one.", status=400)
    for name, value in given.items():
        if name in ("json", "json_object"):
            return schema_grammar(value, name)
        if name == "choice":
            return _library().grammar_from_lark("start: " + " | ".join(json.dumps(choice) for choice in value))
        return _library().grammar_from_regex(value) if name == "regex" else _from_text(value)
    return None


def _from_text(grammar: str) -> str:
    """Lark, or the GBNF of llama.cpp, which has ::= in its rules."""
    if "::=" not in grammar:
        return str(_library().grammar_from_lark(grammar))
    from llguidance.gbnf_to_lark import any_to_lark

    try:
        return str(_library().grammar_from_lark(any_to_lark(grammar)))
    except Exception as error:  # a parser of text from a stranger
        raise RequestError(f"The grammar cannot be read: {error}", param="grammar", status=400) from error


def schema_grammar(schema: object, field: str) -> str:
    """Return the grammar of a JSON schema, a mapping or its text."""
    try:
        schema = json.loads(schema) if isinstance(schema, str) else schema
        # Without blanks between tokens: a model that writes blanks for ever would never end.
        compact = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
        text = json.dumps(schema, ensure_ascii=False)
        if len(text) > MAX_SCHEMA:
            raise ValueError(f"it has {len(text)} characters; the limit is {MAX_SCHEMA}")
        return str(_library().grammar_from_json_schema(text, overrides=compact))
    except (RecursionError, TypeError, ValueError) as error:
        message = f"The JSON schema cannot be compiled: {' '.join(str(error).split())[:500]}"
        raise RequestError(message, param=field, status=400) from error


def _library() -> Any:
    try:
        from llguidance import LLMatcher
    except ImportError as error:
        raise ConfigError(
            "Structured output needs the package llguidance.", hint=_HINT, package="llguidance"
        ) from error
    return LLMatcher


class Grammars:
    """Compiles grammars for the vocabulary of one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, num_tokens: int) -> None:
        self._tokenizer, self._num_tokens = tokenizer, num_tokens
        self._vocabulary: Any = None
        self._lock = threading.Lock()

    def guide(self, grammar: str, *, num_prompt: int, end_ids: list[int]) -> Guide:
        """Return the processor of one answer."""
        matcher = _library()(self._read_vocabulary(end_ids), grammar, log_level=0)
        if matcher.is_error():
            message = f"The constraint cannot be compiled: {' '.join(matcher.get_error().split())[:500]}"
            raise RequestError(message, status=400)
        return Guide(matcher, num_prompt, self._num_tokens)

    def _read_vocabulary(self, end_ids: list[int]) -> Any:
        """llguidance's form of the vocabulary, which takes a second to make."""
        with self._lock:
            if self._vocabulary is None:
                from llguidance.hf import from_tokenizer

                try:
                    self._vocabulary = from_tokenizer(self._tokenizer, self._num_tokens, end_ids or None)
                except Exception as error:  # of Rust, in words of its own
                    message = f"llguidance cannot read the tokenizer of this model: {str(error)[:300]}"
                    raise ConfigError(message, hint="Use a model with a fast tokenizer.") from error
            return self._vocabulary


class Guide(LogitsProcessor):
    """Bans the tokens that the grammar does not allow next."""

    def __init__(self, matcher: Any, num_prompt: int, num_tokens: int) -> None:
        self._matcher, self._num_seen, self._num_tokens = matcher, num_prompt, num_tokens
        self._mask = torch.zeros(1, (num_tokens + 31) // 32, dtype=torch.int32)
        self._bits = torch.arange(32, dtype=torch.int32)

    def copy(self) -> Guide:
        """Return the processor of another answer, without compiling the grammar again."""
        return Guide(self._matcher.deep_copy(), self._num_seen, self._num_tokens)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return logits with -inf for tokens that are not allowed."""
        for token in input_ids[0, self._num_seen :].tolist():
            self._matcher.consume_token(token)
        self._num_seen = input_ids.shape[1]
        if self._matcher.is_error():
            raise RuntimeError(f"The grammar failed: {self._matcher.get_error()[:300]}")
        self._matcher.unsafe_compute_mask_ptr(self._mask.data_ptr(), self._mask.numel() * 4)
        allowed = ((self._mask[0, :, None] >> self._bits) & 1).flatten()[: scores.shape[-1]].bool()
        return scores.masked_fill(~allowed, float("-inf"))
