"""Text to text, summarization and translation, which transformers 5 has no pipelines for any more.

    translate = pipeline("translation_en_to_de", "t5-small", export=True, sequence_length=128)
    print(translate("Good morning.")[0]["translation_text"])

The three differ in the name of the result, and in how a source is marked as one to summarize or to translate.
"""

from __future__ import annotations

from typing import Any

from transformers import Pipeline

from ..base.foreign import tokenizer_facts
from ..base.model_facts import facts_of
from ..errors import ConfigError
from .names import TEXT_TO_TEXT, plain_name


class TextToTextPipeline(Pipeline):
    """Writes a text for each text.

    It is called with a text or a list of texts. Options: `prefix` (put before each text; None takes what the
    configuration's `task_specific_params` say), `truncation` (True cuts texts at the longest compiled source),
    `src_lang` and `tgt_lang` (for tokenizers that know languages), and every keyword of `generate`.
    """

    _load_processor = False
    _load_image_processor = False
    _load_feature_extractor = False
    _load_tokenizer = True

    def __init__(self, *args: Any, task: str, **kwargs: Any) -> None:
        specific = (facts_of(kwargs["model"].config).task_specific_params or {}).get(task, {})
        self._default_prefix = specific.get("prefix", "")
        self._result_name = TEXT_TO_TEXT[plain_name(task)]
        super().__init__(*args, task=task, **kwargs)

    def __call__(self, texts: str | list[str], **options: object) -> Any:
        """Return a list of results for a text; for several texts one result each, or a list each if asked for more."""
        batch = [texts] if isinstance(texts, str) else texts
        if not isinstance(batch, list) or not batch or not all(isinstance(t, str) and t.strip() for t in batch):
            message = f"The pipeline {self.task} needs text, not {texts!r}."[:200]
            raise ConfigError(message, hint="Pass a text or a list of texts, none of them empty.", task=self.task)
        results = super().__call__(texts, **options)
        if isinstance(texts, list) and all(len(result) == 1 for result in results):
            return [result[0] for result in results]
        return results

    def _sanitize_parameters(
        self,
        prefix: str | None = None,
        truncation: bool | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        **generating: object,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        before = {"prefix": prefix, "truncation": truncation, "src_lang": src_lang, "tgt_lang": tgt_lang}
        return {name: value for name, value in before.items() if value is not None}, generating, {}

    def preprocess(
        self,
        text: str,
        *,
        prefix: str | None = None,
        truncation: bool = False,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> dict[str, Any]:
        """Tokens of a text, and the token that a translation into another language begins with."""
        assert self.tokenizer is not None
        text = (self._default_prefix if prefix is None else prefix) + text
        options = {"return_tensors": "pt", "truncation": truncation}
        if src_lang is None and tgt_lang is None:
            return dict(self.tokenizer(text, **options))
        build = tokenizer_facts(self.tokenizer)._build_translation_inputs
        if build is None or src_lang is None or tgt_lang is None:
            message = "src_lang and tgt_lang are needed together, but only one is given."
            if build is None:
                message = "The tokenizer has no languages to translate between."
            hint = "Pass both with models such as M2M100 and mBART; others take a prefix, or know one language pair."
            raise ConfigError(message, hint=hint, src_lang=src_lang, tgt_lang=tgt_lang)
        return dict(build(text, src_lang=src_lang, tgt_lang=tgt_lang, **options))

    def _forward(self, inputs: dict[str, Any], **generating: object) -> dict[str, Any]:
        known = ("input_ids", "attention_mask", "forced_bos_token_id")
        ids = self.model.generate(**{name: inputs[name] for name in known if name in inputs}, **generating)
        return {"ids": ids}

    def postprocess(self, outputs: dict[str, Any]) -> list[dict[str, str]]:
        """Texts of all sequences."""
        assert self.tokenizer is not None
        texts = self.tokenizer.batch_decode(outputs["ids"], skip_special_tokens=True)
        return [{self._result_name: text} for text in texts]
