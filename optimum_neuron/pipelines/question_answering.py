"""Extractive question answering, which transformers 5 has no pipeline for any more.

    answer = pipeline("question-answering", "folder")(question="Who?", context="Ada wrote it.")

A context that is longer than the model is read in windows that overlap; the best span of all windows is the answer.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import Pipeline

from ..errors import ConfigError

DEFAULT_STRIDE, DEFAULT_ANSWER_TOKENS = 128, 15

_SPARE_SPANS = 10
"""transformers 4 takes twice as many spans of a window as answers, and these: aligned spans may be the same words."""


class QuestionAnsweringPipeline(Pipeline):
    """Answers a question with a span of a context.

    It is called with a question and a context, by position or by name, or with a dict, or a list of dicts, of these.
    Options, with the meaning and the defaults of transformers 4: `top_k` (answers to return), `doc_stride` (tokens that
    windows overlap by), `max_answer_len` (tokens of an answer), `max_seq_len` (tokens of a window), `max_question_len`
    (tokens of a question, which is cut behind them; by default it is not cut), `handle_impossible_answer` (the empty
    answer counts too), `align_to_words` (an answer begins and ends with whole words of the tokenizer; True by default).
    """

    _load_processor = False
    _load_image_processor = False
    _load_feature_extractor = False
    _load_tokenizer = True

    def __init__(self, *args: object, task: str = "question-answering", **kwargs: object) -> None:
        super().__init__(*args, task=task, **kwargs)

    def __call__(self, inputs: Any = None, context: Any = None, *, question: Any = None, **options: Any) -> Any:
        """Return `{"score", "start", "end", "answer"}` for each question, or a list of them with `top_k` above 1.

        Equal answers are one: their scores are added. A single answer is no list, as in transformers 4.

        Args:
            inputs: a question, several, or dicts with `question` and `context`.
            context: text that has the answer, or one for each question.
            question: `inputs`, by name.
            **options: options of this class.
        """
        if inputs is not None and question is not None:
            raise ConfigError("The question is given by position and by name.", hint="Pass it once.", question=question)
        questions = inputs if question is None else question
        if isinstance(questions, (list, tuple)) and context is not None:
            contexts = [context] * len(questions) if isinstance(context, str) else context
            examples: Any = [{"question": q, "context": c} for q, c in zip(questions, contexts, strict=True)]
        elif isinstance(questions, str) or context is not None:
            examples = {"question": questions, "context": context}
        else:
            examples = questions
        for example in examples if isinstance(examples, list) else [examples]:
            _check(example)
        return super().__call__(examples, **options)

    def _sanitize_parameters(
        self,
        top_k: int | None = None,
        doc_stride: int | None = None,
        max_answer_len: int | None = None,
        max_seq_len: int | None = None,
        max_question_len: int | None = None,
        handle_impossible_answer: bool | None = None,
        align_to_words: bool | None = None,
        **unknown: object,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        before = {"doc_stride": doc_stride, "max_seq_len": max_seq_len, "max_question_len": max_question_len}
        after: dict[str, Any] = {"top_k": top_k, "max_answer_len": max_answer_len}
        after |= {"handle_impossible_answer": handle_impossible_answer, "align_to_words": align_to_words}
        if unknown:
            message = f"Question answering has no option {', '.join(unknown)}."
            raise ConfigError(message, hint=f"Use one of {', '.join((*before, *after))}.", options=list(unknown))
        return _present(before), {}, _present(after)

    def preprocess(
        self,
        example: dict[str, str],
        *,
        doc_stride: int | None = None,
        max_seq_len: int | None = None,
        max_question_len: int | None = None,
    ) -> dict[str, Any]:
        """Tokens of all windows, one row for each."""
        assert self.tokenizer is not None
        length = min(max_seq_len or self._num_columns(), self._num_columns())
        encoded = self.tokenizer(
            self._cut(example["question"], max_question_len),
            example["context"],
            truncation="only_second",
            max_length=length,
            stride=min(doc_stride or DEFAULT_STRIDE, length // 2),
            padding="longest",
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_tensors="pt",
        )
        rows = range(encoded["input_ids"].shape[0])
        of_context = torch.tensor([[kind == 1 for kind in encoded.sequence_ids(row)] for row in rows])
        inputs = {name: tensor for name, tensor in encoded.items() if name in self.model.signature.names}
        cls_token = self.tokenizer.cls_token_id
        return {
            "example": example,
            "offsets": encoded["offset_mapping"],
            "words": [encoded.word_ids(row) for row in rows],
            "of_context": of_context,
            "counts": of_context | (encoded["input_ids"] == (-1 if cls_token is None else cls_token)),
            "inputs": inputs,
        }

    def _cut(self, question: str, num_tokens: int | None) -> str:
        """Return a question without what is behind its first tokens."""
        if num_tokens is None:
            return question
        assert self.tokenizer is not None
        offsets = self.tokenizer(question, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        return question if len(offsets) <= num_tokens else question[: offsets[num_tokens - 1][1]]

    def _num_columns(self) -> int:
        return self.model.neuron_config.buckets("sequence_length")[-1]

    def _forward(self, inputs: dict[str, Any]) -> dict[str, Any]:
        output = self.model(**inputs.pop("inputs"))
        return {**inputs, "start": output.start_logits, "end": output.end_logits}

    def postprocess(
        self,
        windows: dict[str, Any],
        *,
        top_k: int = 1,
        max_answer_len: int = DEFAULT_ANSWER_TOKENS,
        handle_impossible_answer: bool = False,
        align_to_words: bool = True,
    ) -> Any:
        """Return the best spans of all windows. Legend: W windows, T tokens."""
        text, nothing = windows["example"]["context"], 1.0
        num_spans = 2 * top_k + _SPARE_SPANS if align_to_words else top_k
        answers: dict[str, dict[str, Any]] = {}
        for start_T, end_T, offsets, words, counts_T, allowed_T in zip(
            *(windows["start"], windows["end"], windows["offsets"].tolist()),
            *(windows["words"], windows["counts"], windows["of_context"]),
            strict=True,
        ):
            start_T = start_T.masked_fill(~counts_T, -torch.inf).softmax(-1)
            end_T = end_T.masked_fill(~counts_T, -torch.inf).softmax(-1)
            nothing = min(nothing, float(start_T[0] * end_T[0]))
            scores_TT = torch.triu(start_T[:, None] * end_T[None, :]).tril(max_answer_len - 1)
            scores_TT = scores_TT * allowed_T[:, None] * allowed_T[None, :]
            best, places = scores_TT.flatten().topk(min(num_spans, int(scores_TT.count_nonzero())))
            edges = _word_edges(offsets, words, allowed_T.tolist()) if align_to_words else offsets
            for score, place in zip(best.tolist(), places.tolist(), strict=True):
                begin, end = edges[place // len(edges)][0], edges[place % len(edges)][1]
                answer = {"score": 0.0, "start": begin, "end": end, "answer": text[begin:end]}
                answers.setdefault(text[begin:end].lower(), answer)["score"] += score
        if handle_impossible_answer:
            answers[""] = {"score": nothing, "start": 0, "end": 0, "answer": ""}
        ranked = sorted(answers.values(), key=lambda answer: -answer["score"])[:top_k]
        return ranked[0] if len(ranked) == 1 else ranked


def _word_edges(offsets: list[list[int]], words: list[int | None], of_context: list[bool]) -> list[tuple[int, int]]:
    """Return where the word of each token of a context begins and ends in it."""
    edges: dict[int | None, tuple[int, int]] = {}
    for (begin, end), word, allowed in zip(offsets, words, of_context, strict=True):
        if allowed and word is not None:
            edges[word] = (edges.get(word, (begin, end))[0], end)
    return [
        edges.get(word, (begin, end)) if allowed else (begin, end)
        for (begin, end), word, allowed in zip(offsets, words, of_context, strict=True)
    ]


def _present(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _check(example: Any) -> None:
    keys = ("question", "context")
    missing = [key for key in keys if not isinstance(example, dict) or not isinstance(example.get(key), str)]
    missing = missing or [key for key in keys if not example[key].strip()]
    if missing:
        message = f"Question answering needs text in {' and '.join(missing)}."
        raise ConfigError(message, hint="Pass question= and context=, or dicts with these keys.", missing=missing)
