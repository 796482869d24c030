"""Sentence vectors and ranked documents, against the same computed with transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from optimum_neuron import NeuronModelForTextReranking, NeuronSentenceTransformer
from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.modeling.pooling import pooled, read_recipe
from tests.encoders import save_letters, save_tiny_encoder
from tests.raising import raises

SHAPES: dict[str, Any] = {"batch_size": 2, "sequence_length": [8, 24], "optlevel": "1"}
SENTENCES = ["a cat", "a much longer sentence", "dog", "b", "the end of it"]


def write(path: Path, data: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(data))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sentences") / "minilm"
    save_letters(save_tiny_encoder(folder, "bert", "feature-extraction"))
    kinds = [("0", "", "Transformer"), ("1", "1_Pooling", "Pooling"), ("2", "2_Normalize", "Normalize")]
    modules = [{"idx": int(n), "name": n, "path": p, "type": f"sentence_transformers.models.{t}"} for n, p, t in kinds]
    write(folder / "modules.json", modules)
    write(folder / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False})
    write(folder / "sentence_bert_config.json", {"max_seq_length": 20, "do_lower_case": False})
    write(folder / "config_sentence_transformers.json", {"prompts": {"query": "q "}, "similarity_fn_name": "cosine"})
    return folder


@pytest.fixture(scope="module")
def model(checkpoint: Path, environment: None) -> NeuronSentenceTransformer:
    return NeuronSentenceTransformer.from_pretrained(checkpoint, export=True, **SHAPES)


def by_hand(folder: Path, texts: list[str]) -> torch.Tensor:
    """Mean of the real tokens, scaled to length 1, one text at a time."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    original = transformers.AutoModel.from_pretrained(folder).eval()
    tokens = [tokenizer(text, return_tensors="pt", truncation=True, max_length=20) for text in texts]
    with torch.no_grad():
        rows = [original(**row).last_hidden_state.mean(1) for row in tokens]
    return torch.nn.functional.normalize(torch.cat(rows), dim=-1)


def test_vectors_keep_sentence_order(model, checkpoint):
    """The peer sorts by length and sorts back by the wrong permutation: lengths 2, 1, 3 give e1, e2, e0."""
    expected = by_hand(checkpoint, SENTENCES)
    for size in (1, 2, 32):
        actual = model.encode(SENTENCES, batch_size=size)
        assert isinstance(actual, np.ndarray)
        np.testing.assert_allclose(actual, expected.numpy(), atol=1e-5)
    three = ["bb", "a", "ccc"]
    np.testing.assert_allclose(model.encode(three), by_hand(checkpoint, three).numpy(), atol=1e-5)


def test_one_sentence_gives_one_vector_in_any_output_type(model):
    one = model.encode("a cat")
    assert one.shape == (model.get_sentence_embedding_dimension(),) == (model.get_embedding_dimension(),) == (32,)
    as_tensor = model.encode(["a cat"], convert_to_tensor=True)
    assert isinstance(as_tensor, torch.Tensor) and torch.allclose(as_tensor[0], torch.tensor(one), atol=1e-6)
    assert isinstance(model.encode(["a cat"], convert_to_numpy=False), list)
    for precision in (None, "float32"):  # as evaluators of sentence-transformers name it
        assert (model.encode("a cat", precision=precision) == one).all()


def test_long_sentences_are_truncated_to_folder_and_bucket_limits(model, checkpoint):
    assert model.max_seq_length == 20
    long = "x" * 60
    np.testing.assert_allclose(model.encode([long]), by_hand(checkpoint, [long]).numpy(), atol=1e-5)


def test_prompts_are_prepended_by_name(model):
    assert np.array_equal(model.encode("cat", prompt_name="query"), model.encode("q cat"))
    assert np.array_equal(model.encode("cat", prompt="see "), model.encode("see cat"))
    with raises(ConfigError, option="prompt_name", value="passage", choices=["query", "document"]):
        model.encode("cat", prompt_name="passage")
    assert np.array_equal(model.encode_query(["cat"]), model.encode(["q cat"]))
    assert np.array_equal(model.encode_query("cat", prompt="z "), model.encode("z cat"))
    assert np.array_equal(model.encode_document(["cat"]), model.encode(["cat"])), "the folder has no such prompt"
    prompts = {"query": "q ", "document": ""}  # sentence-transformers adds the second
    assert (model.prompts, model.default_prompt_name, model.similarity_fn_name) == (prompts, None, "cosine")


MODULES = {
    "two dense": [
        ("Dense", {"out": 48}),
        ("Dense", {"out": 16, "activation": "Identity", "bias": False}),
        "norm",
    ],
    "residual": ["layer norm", ("Dense", {"out": 24, "use_residual": True}), "dropout"],
    "residual of the same width": [("Dense", {"out": 32, "use_residual": True, "activation": "GELU"})],
    "normalized in between": ["norm", ("Dense", {"out": 8})],
}


def save_with_modules(folder, checkpoint, parts, **pooling):
    """Write a folder with sentence-transformers itself, with modules after pooling; return its model."""
    peer = pytest.importorskip("sentence_transformers")
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling

    torch.manual_seed(0)
    width, modules = 32, [Transformer(str(checkpoint), max_seq_length=20), Pooling(32, **pooling)]
    for part in parts:
        if isinstance(part, tuple):
            options = dict(part[1])
            path = options.pop("activation", "Tanh")
            out = options.pop("out")
            modules.append(Dense(width, out, activation_function=getattr(torch.nn, path)(), **options))
            width = out
        else:
            modules.append({"norm": Normalize(), "dropout": Dropout(), "layer norm": LayerNorm(width)}[part])
    model = peer.SentenceTransformer(modules=modules, device="cpu")
    for parameter in (p for module in modules[2:] for p in module.parameters()):
        torch.nn.init.normal_(parameter, 0.1, 0.3)
    model.save(str(folder))
    return model


@pytest.mark.parametrize("name", MODULES)
def test_modules_after_pooling_are_those_of_sentence_transformers(name, checkpoint, environment, tmp_path):
    original = save_with_modules(tmp_path / "model", checkpoint, MODULES[name], pooling_mode="mean")
    model = NeuronSentenceTransformer.from_pretrained(tmp_path / "model", export=True, **SHAPES)
    expected = original.encode(SENTENCES)
    np.testing.assert_allclose(model.encode(SENTENCES), expected, atol=1e-5)
    assert model.get_embedding_dimension() == original.get_embedding_dimension() == expected.shape[1]
    model.save_pretrained(tmp_path / "out")
    again = NeuronSentenceTransformer.from_pretrained(tmp_path / "out")
    assert np.array_equal(again.encode(SENTENCES), model.encode(SENTENCES))


@pytest.mark.parametrize("mode", ["mean", "cls", "max", "weightedmean", "lasttoken"])
def test_prompts_are_those_of_sentence_transformers(mode, checkpoint, environment, tmp_path):
    """A prompt "passage" alone is not used: the empty "document" is found first, as is an empty "query"."""
    original = save_with_modules(tmp_path / "model", checkpoint, [], pooling_mode=mode, include_prompt=False)
    original.prompts |= {"passage": "the passage ", "other": "a b "}
    original.default_prompt_name, original.truncate_dim = "other", 24
    original.save(str(tmp_path / "model"))
    model = NeuronSentenceTransformer.from_pretrained(tmp_path / "model", export=True, **SHAPES)
    assert model.prompts == original.prompts and model.get_embedding_dimension() == 24
    for method in ("encode", "encode_query", "encode_document"):
        for options in ({}, {"prompt_name": "passage"}, {"prompt": "b "}, {"truncate_dim": 5}):
            expected = getattr(original, method)(SENTENCES, **options)
            np.testing.assert_allclose(getattr(model, method)(SENTENCES, **options), expected, atol=1e-5)


def test_modules_that_are_not_supported_are_named(checkpoint, tmp_path):
    save_with_modules(tmp_path / "model", checkpoint, [("Dense", {"out": 8})], pooling_mode="mean")
    path = next((tmp_path / "model").glob("*_Dense")) / "config.json"
    settings = json.loads(path.read_text())
    for name, value in (("activation_function", "my.Activation"), ("module_input_name", "token_embeddings")):
        write(path, settings | {name: value})
        with raises(ModelError, option=name, value=value):
            read_recipe(tmp_path / "model")


def test_short_vectors_and_pairs(model):
    vectors = model.encode(SENTENCES, convert_to_tensor=True)
    short = model.encode(SENTENCES, convert_to_tensor=True, truncate_dim=8, normalize_embeddings=True)
    assert torch.allclose(short, torch.nn.functional.normalize(vectors[:, :8], dim=-1), atol=1e-6)
    pairs = model.similarity_pairwise(vectors, vectors.flip(0))
    assert torch.allclose(pairs, model.similarity(vectors, vectors.flip(0)).diag(), atol=1e-6)
    result = model.similarity(vectors.numpy(), vectors.numpy())
    assert result.shape == (5, 5) and torch.allclose(result.diagonal(), torch.ones(5), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "details"),
    [
        ({"batch_size": 0}, {"option": "batch_size", "value": 0}),
        ({"device": "cuda"}, {"device": "cuda"}),
        ({"precision": "int8"}, {"option": "precision", "value": "int8"}),
        *(({"sentences": texts}, {"argument": "sentences"}) for texts in (None, [], [1], ["a", None], np.array([1]))),
    ],
    ids=str,
)
def test_unsupported_encode_arguments(model, options, details):
    with raises(ConfigError, **details):
        model.encode(**{"sentences": ["a"], **options})


def test_saved_folder_keeps_pooling_and_prompts(model, tmp_path):
    model.save_pretrained(tmp_path / "out")
    model.save_pretrained(tmp_path / "out")
    loaded_model = NeuronSentenceTransformer.from_pretrained(tmp_path / "out")
    assert loaded_model.recipe == model.recipe
    assert np.array_equal(loaded_model.encode(SENTENCES), model.encode(SENTENCES))


HIDDEN = torch.tensor([[[1.0, 4.0], [3.0, 2.0], [9.0, 9.0]]])
MASK = torch.tensor([[1, 1, 0]])


@pytest.mark.parametrize(
    ("mode", "vector"),
    [
        ("cls", [1.0, 4.0]),
        ("max", [3.0, 4.0]),
        ("mean", [2.0, 3.0]),
        ("mean_sqrt_len_tokens", [4 / 2**0.5, 6 / 2**0.5]),
        ("weightedmean", [7 / 3, 8 / 3]),
        ("lasttoken", [3.0, 2.0]),
    ],
)
def test_modes_of_pooling_leave_padding_out(mode, vector):
    assert pooled(HIDDEN, MASK, (mode,))[0].tolist() == pytest.approx(vector)
    assert pooled(HIDDEN, MASK, (mode, "cls")).shape == (1, 4)
    left = pooled(HIDDEN.flip(1), MASK.flip(1), ("lasttoken",))[0].tolist()
    assert left == [1.0, 4.0]


def test_recipes(tmp_path):
    assert read_recipe(tmp_path).choice.reason == "the folder has no pooling module: mean of the tokens"
    write(tmp_path / "modules.json", [{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])
    path = tmp_path / "1_Pooling" / "config.json"
    for config, modes in (
        ({"pooling_mode": "lasttoken"}, ("lasttoken",)),
        ({"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}, ("cls", "max")),
    ):
        write(path, config)
        assert read_recipe(tmp_path).pooling == modes
    write(path, {"pooling_mode": "median"})
    with raises(ModelError, modes=["median"]):
        read_recipe(tmp_path)
    write(tmp_path / "modules.json", [{"path": "3_LSTM", "type": "sentence_transformers.models.LSTM"}])
    with raises(ModelError, modules=["LSTM"]):
        read_recipe(tmp_path)


# Ranking.


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory, environment: None) -> NeuronModelForTextReranking:
    folder = tmp_path_factory.mktemp("ranker") / "bert"
    save_letters(save_tiny_encoder(folder, "bert", "text-classification", num_labels=1))
    return NeuronModelForTextReranking.from_pretrained(folder, export=True, **SHAPES)


def test_document_ranking_matches_reference(ranker):
    documents = ["a cat", "the long dog", "bird", "sea"]
    original = transformers.AutoModelForSequenceClassification.from_pretrained(ranker.source_folder).eval()
    with torch.no_grad():
        encoded = [ranker.tokenizer("pet", text, return_tensors="pt") for text in documents]
        expected = torch.cat([original(**row).logits[0] for row in encoded]).sigmoid()
    ranked = ranker.rank("pet", documents, return_documents=True, batch_size=3)
    assert [row["corpus_id"] for row in ranked] == expected.argsort(descending=True).tolist()
    assert [row["score"] for row in ranked] == pytest.approx(expected.sort(descending=True).values.tolist(), abs=1e-5)
    assert ranked[0]["text"] == documents[ranked[0]["corpus_id"]]
    assert len(ranker.rank("pet", documents, top_k=2)) == 2


@pytest.mark.full(days=3)
@pytest.mark.parametrize("name", ["linear.Identity", "activation.Sigmoid", "activation.Tanh"])
@pytest.mark.parametrize("is_old", [False, True])
def test_scores_follow_configuration(ranker, tmp_path, name, is_old):
    path = f"torch.nn.modules.{name}"
    key, says = "sentence_transformers", {"activation_fn": path}
    if is_old:
        key, says = "sbert_ce_default_activation_function", path
    folder = shutil.copytree(ranker.source_folder, tmp_path / "copy")
    write(folder / "config.json", json.loads((folder / "config.json").read_text()) | {key: says})
    other = NeuronModelForTextReranking.from_pretrained(folder, export=True, **SHAPES)
    if name.endswith("Tanh"):
        with raises(ModelError, activation=path):
            other.predict([("a", "b")])
        return
    score, probability = other.predict([("a", "b")]), ranker.predict([("a", "b")])
    assert torch.allclose(score.sigmoid() if name.endswith("Identity") else score, probability)


def test_errors_of_ranking(ranker, tmp_path):
    with raises(ConfigError, option="batch_size", value=0):
        ranker.predict([("a", "b")], batch_size=0)
    for pairs in ([], ["ab"]):
        with raises(ConfigError, argument="pairs"):
            ranker.predict(pairs)
    folder = save_letters(save_tiny_encoder(tmp_path, "bert", "text-classification"))
    several = NeuronModelForTextReranking.from_pretrained(folder, export=True, **SHAPES)
    assert several.predict([("a", "b")]).shape == (1, 3)
    with raises(ConfigError, num_labels=3):
        several.rank("a", ["b"])


# Result of a call.


def test_features_are_attributes_and_items(model):
    tokens = model.tokenize("a cat", return_tensors="pt")
    assert tokens.input_ids.shape[0] == 1 and tokens.keys() <= set(model.signature.names)
    output = model(**tokens)
    assert output.sentence_embedding is output["sentence_embedding"] and output.token_embeddings.shape == (1, 7, 32)
    assert torch.equal(torch.tensor(model.encode("a cat")), output.sentence_embedding[0])
    assert isinstance(output, dict) and output.input_ids is output["input_ids"]
    with pytest.raises(AttributeError, match="sentence_embedding"):
        output.sentence_embeddings  # noqa: B018


WRONG_FILES = {
    "modules.json": [
        ("path", "../secret"),
        ("path", "/etc"),
        ("path", "1_Pooling/../../secret"),
        ("path", None),
        ("type", 5),
    ],
    "1_Pooling/config.json": [("pooling_mode", 5), ("include_prompt", "x"), ("pooling_mode_mean_tokens", 1.5)],
    "sentence_bert_config.json": [("max_seq_length", 0), ("max_seq_length", "x"), ("do_lower_case", {})],
    "config_sentence_transformers.json": [
        ("prompts", {"query": 5}),
        ("prompts", []),
        ("truncate_dim", -1),
        ("similarity_fn_name", "x"),
        ("default_prompt_name", []),
    ],
}


@pytest.mark.parametrize(("file", "key", "value"), [(f, *one) for f, every in WRONG_FILES.items() for one in every])
def test_files_of_strangers(file, key, value, tmp_path):
    modules = [
        {"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    write(tmp_path / "modules.json", modules)
    (tmp_path / "1_Pooling").mkdir(exist_ok=True)
    write(tmp_path / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True})
    assert read_recipe(tmp_path).pooling == ("mean",)
    path = tmp_path / file
    data = json.loads(path.read_text()) if path.is_file() else {}
    write(path, [data[0], {**data[1], key: value}] if isinstance(data, list) else {**data, key: value})
    with pytest.raises(ModelError) as error:
        read_recipe(tmp_path)
    assert error.value.details["key"].partition(".")[0] == key and error.value.details["file"] == str(path)
