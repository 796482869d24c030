"""Real checkpoints and data match their rows, and compiled models match transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from optimum_neuron.checkpoints import CHECKPOINTS, fetch, read_rows
from optimum_neuron.checkpoints.folder import damaged_files

pytestmark = pytest.mark.checkpoint

HEAVY = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWGGDGFYAMDYWGQ"
    "GTLVTVSS"
)
LIGHT = "DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQPEDFATYYCQQHYTTPPTFGQGTKVEIK"
"""Variable regions of trastuzumab, a published sequence."""


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """The developer's checkpoints, but compile caches of the test."""
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "neff"))


@pytest.mark.full(days=5)
@pytest.mark.parametrize("checkpoint", CHECKPOINTS, ids=lambda checkpoint: checkpoint.name)
def test_checkpoint_matches_its_row(checkpoint):
    import transformers

    folder = fetch(checkpoint.name, progress=False)
    assert damaged_files(folder) == []
    architecture = getattr(transformers, checkpoint.architecture)
    model, report = architecture.from_pretrained(folder, output_loading_info=True)
    assert {kind: keys for kind, keys in report.items() if keys} == {}
    assert model.num_parameters() == checkpoint.num_parameters


@pytest.mark.full(days=5)
def test_tokens_of_smollm2():
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(fetch("smollm2", progress=False))
    # Ids as llama.cpp 0.3.36 gives them for the same file (Llama.tokenize with special=True).
    assert tokenizer("The year 2023's").input_ids == [504, 713, 216, 34, 32, 34, 35, 506]
    assert tokenizer("<|im_start|>user\nhi<|im_end|>\n").input_ids == [1, 4093, 198, 6004, 2, 198]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )
    assert text.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.full(days=5)
@pytest.mark.parametrize(
    ("name", "text", "tokens"),
    [
        ("rxnmapper", "[Na+].BrC1CC1>>Cl%12", ["[Na+]", ".", "Br", "C", "1", "C", "C", "1", ">>", "Cl", "%12"]),
        ("sapiens-vh", "EVxQ", ["E", "V", "<unk>", "Q"]),
    ],
)
def test_words_are_split_as_in_the_package(name, text, tokens):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(fetch(name, progress=False))
    ids = tokenizer(text).input_ids
    cut = [token if token in tokenizer.get_vocab() else tokenizer.unk_token for token in tokens]
    assert tokenizer.convert_ids_to_tokens(ids) == [tokenizer.cls_token, *cut, tokenizer.sep_token]


@pytest.mark.full(days=5)
def test_sentences_of_minilm():
    from transformers import AutoModel, AutoTokenizer

    from optimum_neuron import NeuronSentenceTransformer

    sentences = ["The food was delicious.", "I enjoyed the meal.", "Wall Street fell for the third day. " * 5]
    model = NeuronSentenceTransformer.from_pretrained(
        "minilm", export=True, batch_size=2, sequence_length=[32, 64], optlevel="1"
    )
    vectors = model.encode(sentences, convert_to_tensor=True)
    folder = fetch("minilm", progress=False)
    inputs = AutoTokenizer.from_pretrained(folder)(sentences, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden_BTD = AutoModel.from_pretrained(folder)(**inputs).last_hidden_state
    mask_BT1 = inputs["attention_mask"].unsqueeze(-1)
    expected = torch.nn.functional.normalize((hidden_BTD * mask_BT1).sum(1) / mask_BT1.sum(1), dim=-1)
    torch.testing.assert_close(vectors, expected, rtol=0, atol=1e-6)
    assert torch.nn.functional.cosine_similarity(vectors, expected).min() > 0.999999
    similar = model.similarity(vectors, vectors)
    assert similar[0, 1] > 0.7 and similar[0, 2] < 0.2


@pytest.mark.full(days=5)
@pytest.mark.parametrize(
    ("name", "text", "num_right", "num_tokens"),
    [
        ("rxnmapper", "CC(=O)Cl.Nc1ccccc1>>CC(=O)Nc1ccccc1", 33, 33),
        ("sapiens-vh", HEAVY, 92, 120),
        ("sapiens-vl", LIGHT, 91, 107),
    ],
)
def test_masked_tokens(name, text, num_right, num_tokens):
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    from optimum_neuron import NeuronModelForMaskedLM

    folder = fetch(name, progress=False)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids_T = tokenizer(text, return_tensors="pt")["input_ids"][0]
    places = torch.arange(1, len(ids_T) - 1)
    rows_BT = ids_T.repeat(len(places), 1)
    rows_BT[torch.arange(len(places)), places] = tokenizer.mask_token_id
    length = 64 if len(ids_T) <= 64 else 128
    model = NeuronModelForMaskedLM.from_pretrained(
        name, export=True, batch_size=16, sequence_length=length, optlevel="1"
    )

    def predicted(masked_lm: Any) -> torch.Tensor:
        with torch.no_grad():
            return masked_lm(input_ids=rows_BT).logits[torch.arange(len(places)), places]

    found_BV, expected_BV = predicted(model), predicted(AutoModelForMaskedLM.from_pretrained(folder).eval())
    assert (found_BV - expected_BV).abs().max() < 1e-5 * expected_BV.abs().max()
    assert torch.equal(found_BV.argmax(-1), expected_BV.argmax(-1))
    assert (int((found_BV.argmax(-1) == ids_T[places]).sum()), len(places)) == (num_right, num_tokens)


@pytest.mark.full(days=5)
def test_pages_of_pp_lcnet():
    from PIL import Image, ImageDraw, ImageFont
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    from optimum_neuron import NeuronModelForImageClassification

    page = Image.new("RGB", (600, 800), "white")
    for line in range(28):
        draw, font = ImageDraw.Draw(page), ImageFont.load_default(22)
        draw.text((40, 30 + 26 * line), f"A line of text with the number {line}, and more", font=font, fill="black")
    pages = [page.rotate(-degrees, expand=True) for degrees in (0, 90, 180, 270)]
    folder = fetch("pp-lcnet", progress=False)
    inputs = AutoImageProcessor.from_pretrained(folder)(images=pages, return_tensors="pt")
    model = NeuronModelForImageClassification.from_pretrained("pp-lcnet", export=True, batch_size=2, optlevel="1")
    found_BC = model(**inputs).last_hidden_state
    with torch.no_grad():
        expected_BC = AutoModelForImageClassification.from_pretrained(folder)(**inputs).last_hidden_state
    torch.testing.assert_close(found_BC, expected_BC, rtol=0, atol=1e-5)
    assert [model.config.id2label[index] for index in found_BC.argmax(-1).tolist()] == ["0", "90", "180", "270"]


@pytest.mark.full(days=5)
def test_recordings_of_whisper():
    """The same tokens with timestamps as transformers', and the same times of words."""
    import wave

    import numpy as np
    from transformers import AutoFeatureExtractor, WhisperForConditionalGeneration

    from optimum_neuron import NeuronModelForSpeechSeq2Seq

    folder = fetch("whisper-tiny.en", progress=False)
    model = NeuronModelForSpeechSeq2Seq.from_pretrained(
        "whisper-tiny.en", export=True, batch_size=2, output_attentions=True, optlevel="1"
    )
    original = WhisperForConditionalGeneration.from_pretrained(folder, attn_implementation="eager").eval()
    samples = []
    for row in read_rows("librivox", progress=False)[:2]:
        with wave.open(row["audio"]) as file:
            samples.append(np.frombuffer(file.readframes(file.getnframes()), np.int16) / np.float32(1 << 15))
    inputs = AutoFeatureExtractor.from_pretrained(folder)(samples, sampling_rate=16_000, return_tensors="pt")
    options = {"return_timestamps": True, "return_token_timestamps": True}
    result, expected = (runner.generate(**inputs, **options) for runner in (model, original))
    assert torch.equal(result["sequences"], expected["sequences"]) and result["sequences"].shape[0] == 2
    times = result["token_timestamps"]
    assert torch.equal(times, expected["token_timestamps"]) and times[0].unique().numel() > 10


@pytest.mark.full(days=5)
@pytest.mark.parametrize(("name", "key"), [("sentiment", "text"), ("chat", "answer")])
def test_real_rows(name, key):
    rows = read_rows(name, progress=False)
    assert all(row[key] for row in rows)
