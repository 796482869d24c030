"""Bodies of `/v1/chat/completions` and `/v1/completions`: OpenAI's fields, and vLLM's beside them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from .base import (
    MAX_SCHEMA,
    Count,
    Json,
    Label,
    Many,
    Priority,
    Probability,
    Request,
    Schema,
    SchemaText,
    Strict,
    Text,
    TimeLimit,
)

_Penalty = Annotated[float, Field(ge=-2, le=2)]
_Bias = Annotated[float, Field(ge=-100, le=100)]
_Regex = Annotated[str, Field(max_length=20_000)]
_Word = Annotated[str, Field(min_length=1, max_length=256)]
_Stop = Annotated[str, Field(max_length=1024)]
_TokenKey = Annotated[str, Field(max_length=16)]


def _check_choices(choices: list[str]) -> list[str]:
    if (number := sum(map(len, choices))) > MAX_SCHEMA:
        raise ValueError(f"the choices have {number} characters together; the limit is {MAX_SCHEMA}")
    return choices


_Choices = Annotated[Many[Text], Field(min_length=1, max_length=10_000), AfterValidator(_check_choices)]
MAX_TOOLS = 1024
"""Tools of a request, and calls of a message; OpenAI takes 128."""
MAX_PARTS = 4096
"""Parts of a message's content."""
MAX_IDS = 10_000
"""Token ids of a field that names some tokens of the vocabulary."""
_Ids = Annotated[Many[Count], Field(max_length=500_000)]
"""Token ids of a prompt, or of an answer; the model's length limits them before."""
_PROMPTS = Field(max_length=256)


class StreamOptions(Strict):
    """Options of a stream."""

    include_usage: bool = False
    """Send the number of tokens in a last chunk."""
    continuous_usage_stats: bool = False
    """Send it in every chunk."""


class JsonSchema(Strict):
    """A named schema of OpenAI's structured outputs."""

    name: Label = ""
    description: Text | None = None
    schema_: Schema | bool | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Strict):
    """Form of an answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _has_schema(self) -> ResponseFormat:
        if self.type == "json_schema" and (self.json_schema is None or self.json_schema.schema_ is None):
            raise ValueError("type 'json_schema' needs json_schema.schema")
        return self


class StructuredOutputs(Strict):
    """vLLM's constraints of an answer, of which a request has one."""

    json_: Schema | SchemaText | bool | None = Field(None, alias="json")
    regex: _Regex | None = None
    choice: _Choices | None = None
    grammar: SchemaText | None = None
    json_object: bool | None = None

    @model_validator(mode="after")
    def _is_single(self) -> StructuredOutputs:
        if (
            sum(value is not None for value in (self.json_, self.regex, self.choice, self.grammar, self.json_object))
            > 1
        ):
            raise ValueError("use one of json, regex, choice, grammar, and json_object")
        return self


class Generation(Request):
    """Parameters of sampling and of answers that both kinds of completions have."""

    n: Annotated[int, Field(ge=1, le=128)] = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    stop: _Stop | Annotated[Many[_Stop], Field(max_length=16)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    frequency_penalty: _Penalty = 0.0
    presence_penalty: _Penalty = 0.0
    logit_bias: Annotated[dict[_TokenKey, _Bias], Field(max_length=1024)] | None = None
    # vLLM's.
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    min_p: Probability | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    min_tokens: Count = 0
    stop_token_ids: Annotated[Many[Count], Field(max_length=1024)] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: Literal[True] = True
    truncate_prompt_tokens: Annotated[int, Field(ge=-1)] | None = None
    allowed_token_ids: Annotated[Many[Count], Field(min_length=1, max_length=MAX_IDS)] | None = None
    bad_words: Annotated[Many[_Word], Field(max_length=128)] | None = None
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False
    priority: Priority = 0
    request_id: Annotated[str, Field(max_length=256)] | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | SchemaText | None = None
    guided_regex: _Regex | None = None
    guided_choice: _Choices | None = None
    guided_grammar: SchemaText | None = None
    response_format: ResponseFormat | None = None
    add_special_tokens: bool | None = None
    timeout_s: TimeLimit = None

    @model_validator(mode="after")
    def _is_consistent(self) -> Generation:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream=true")
        if any(not stop for stop in self.stops):
            raise ValueError("stop has an empty string")
        return self

    @property
    def stops(self) -> list[str]:
        """Stop strings."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def sends_usage(self) -> bool:
        """Whether a stream ends with the number of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionRequest(Generation):
    """Body of `/v1/completions`."""

    prompt: Text | Annotated[Many[Text], _PROMPTS] | _Ids | Annotated[Many[_Ids], _PROMPTS]
    max_tokens: Count | None = 16
    best_of: Annotated[int, Field(ge=1, le=128)] | None = None
    echo: bool = False
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    suffix: None = None

    @model_validator(mode="after")
    def _is_possible(self) -> CompletionRequest:
        if self.best_of is not None and self.best_of < self.n:
            raise ValueError("best_of is less than n")
        if self.best_of is not None and self.best_of > self.n and self.stream:
            raise ValueError("best_of larger than n cannot be streamed")
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens=0 needs echo=true")
        return self


class Function(Strict):
    """A function that the model may call."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: Text | None = None
    parameters: Schema | None = None
    strict: bool | None = None


class Tool(Strict):
    """A tool; all are functions."""

    type: Literal["function"] = "function"
    function: Function


class NamedFunction(Strict):
    """The name of a function."""

    name: Label


class NamedTool(Strict):
    """The tool that the model must call."""

    type: Literal["function"] = "function"
    function: NamedFunction


class CalledFunction(Strict):
    """A call in an earlier message."""

    name: Label
    arguments: Text | Json = ""


class ToolCall(Strict):
    """The same, with its name."""

    id: Label | None = None
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None


class TextPart(Strict):
    """A part of a message."""

    type: Literal["text"]
    text: Text


class Message(Strict):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Text | Annotated[Many[TextPart], Field(max_length=MAX_PARTS)] | None = None
    name: Label | None = None
    tool_calls: Annotated[Many[ToolCall], Field(max_length=MAX_TOOLS)] | None = None
    tool_call_id: Label | None = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None
    refusal: Text | None = None
    audio: None = None
    annotations: Annotated[Many[Any], Field(max_length=MAX_PARTS)] | None = None
    function_call: None = None


Messages = Annotated[Many[Message], Field(min_length=1, max_length=4096)]
"""Messages of a chat; OpenAI takes 2048."""


class ChatRequest(Generation):
    """Body of `/v1/chat/completions`."""

    messages: Messages
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: Annotated[Many[Tool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool = True
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    include_reasoning: bool = True
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: Json | None = None
    documents: Annotated[Many[Json], Field(max_length=2048)] | None = None
    echo: Literal[False] = False
    metadata: Json | None = None
    store: Literal[False] | None = None
    service_tier: Literal["auto", "default"] | None = None

    @model_validator(mode="after")
    def _is_possible(self) -> ChatRequest:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs=true")
        if self.continue_final_message and self.add_generation_prompt:
            raise ValueError("continue_final_message needs add_generation_prompt=false")
        if not self.tools and self.tool_choice not in (None, "none", "auto"):
            raise ValueError("tool_choice needs tools")
        named = self.tool_choice.function.name if isinstance(self.tool_choice, NamedTool) else None
        if named is not None and named not in {tool.function.name for tool in self.tools or ()}:
            raise ValueError(f"tool_choice names {named!r}, which is not among tools")
        return self


class TokenizeRequest(Request):
    """Body of `/tokenize`: a prompt, or the messages of a chat."""

    prompt: Text | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    return_token_strs: bool = False
    tools: Annotated[Many[Tool], Field(max_length=MAX_TOOLS)] | None = None
    chat_template_kwargs: Json | None = None

    @model_validator(mode="after")
    def _is_single(self) -> TokenizeRequest:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("use either prompt or messages")
        return self


class DetokenizeRequest(Request):
    """Body of `/detokenize`."""

    tokens: _Ids
