"""Batches and data sets that a model cannot use."""

from __future__ import annotations

import copy

import pytest
import torch

from optimum_neuron.errors import ConfigError, ModelError, ShapeError
from optimum_neuron.trainer import BucketCollator, Limits
from optimum_neuron.trainer.inputs import require_usable
from tests.raising import raises
from tests.trainer.conftest import SIZES, losses


def row(ids, labels=None):
    ids = torch.tensor(ids)
    return {"input_ids": ids, "labels": ids if labels is None else torch.tensor(labels)}


@pytest.mark.parametrize(
    ("bad", "column", "value"),
    [
        (row([1, 96]), "input_ids", 96),
        (row([1, -3], [1, 3]), "input_ids", -3),
        (row([1, 2], [1, 200]), "labels", 200),
        (row([1, 2], [1, -5]), "labels", -5),
    ],
)
def test_values_out_of_range(train, llama, bad, column, value):
    with raises(ModelError, column=column, value=value, count=96, where="training step 1"):
        train(llama, [row([1, 2])] * 3 + [bad], per_device_train_batch_size=4)


def test_classes_out_of_range(train, make, bert, classes):
    bad = {**classes[0], "labels": torch.tensor(3)}
    with raises(ModelError, value=3, count=3):
        train(bert, [bad] * 4)
    with raises(ModelError, column="labels", where="evaluation"):
        make(bert, classes, eval_dataset=[bad]).evaluate()


def test_rows_beyond_positions(train, llama, bert):
    with raises(ModelError, num_tokens=70, num_positions=64, where="training step 1"):
        train(llama, [row([1] * 70)] * 4)


def test_roberta_positions_start_after_padding_token():
    from transformers import RobertaConfig, RobertaForMaskedLM

    limits = Limits.of(RobertaForMaskedLM(RobertaConfig(**SIZES)))
    assert limits.num_positions == 62
    with raises(ModelError, num_positions=62):
        require_usable({"input_ids": torch.ones(1, 63, dtype=torch.long)}, limits, where="evaluation")


def test_all_problems_of_batch_are_listed():
    limits = Limits(num_tokens=8, num_positions=2, num_labels=3)
    batch = {"input_ids": torch.tensor([[1, 9, 2]]), "labels": torch.tensor([7])}
    with pytest.raises(ModelError) as error:
        require_usable(batch, limits, where="training step 5")
    assert len(error.value.details["problems"]) == len(str(error.value).splitlines()) == 3


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": torch.tensor([[0, 7]]), "labels": torch.tensor([[-100, 2]])},
        {"pixel_values": torch.zeros(1, 3), "labels": torch.tensor([0.5])},
        {"input_ids": torch.zeros(1, 0, dtype=torch.long)},
    ],
)
def test_usable_batches(batch):
    require_usable(batch, Limits(num_tokens=8, num_positions=4, num_labels=3), where="training step 1")


def test_models_without_config_have_no_limits():
    assert Limits.of(torch.nn.Linear(2, 2)) == Limits()


@pytest.mark.parametrize(
    ("rows", "details"),
    [
        ([], {"dataset": "training"}),
        ([{"text": "a", "score": 1}] * 4, {"column": "input_ids", "columns": ["text", "score"]}),
        ([{"text": "a", "score": 1}] * 4, {"unused": ["text", "score"]}),
        ([{"input_ids": torch.arange(8)}] * 4, {"columns": ["input_ids"], "label_names": ["labels"]}),
    ],
)
def test_missing_rows_columns_and_labels(train, llama, rows, details):
    with raises(ConfigError, **details):
        train(llama, rows)


def test_prediction_needs_no_labels(make, llama, sentences):
    rows = [{"input_ids": row["input_ids"]} for row in sentences[:4]]
    assert make(llama, sentences).predict(rows).predictions.shape == (4, 16, 96)


def test_dataset_of_library(train, llama, sentences):
    datasets = pytest.importorskip("datasets")
    ids = [row["input_ids"].tolist() for row in sentences]
    table = datasets.Dataset.from_dict({"input_ids": ids, "labels": ids, "text": ["unused"] * 32})
    assert losses(train(llama, table)) == losses(train(llama, sentences))
    with raises(ConfigError, columns=["text"]):
        train(llama, table.select_columns(["text"]))


class TestBuckets:
    def test_smallest_bucket_that_fits_batch(self):
        collator = BucketCollator(buckets=(4, 8), pad_token_id=9, padding_side="left")
        rows = [{"input_ids": [1] * n, "labels": [2] * n, "score": score} for n, score in ((5, 0.5), (1, 1.0))]
        batch = collator(rows)
        assert batch["input_ids"].shape == (2, 8) and batch["input_ids"][1].tolist() == [9] * 7 + [1]
        assert batch["labels"][1].tolist() == [-100] * 7 + [2] and batch["attention_mask"].sum() == 6
        assert batch["score"].tolist() == [0.5, 1.0]

    def test_padding_does_not_change_loss(self, train, llama):
        rows = [{"input_ids": torch.arange(5 + i % 3), "labels": torch.arange(5 + i % 3)} for i in range(16)]
        result = [
            losses(train(llama, rows, data_collator=BucketCollator(buckets=buckets))) for buckets in ((8,), (16,))
        ]
        assert result[0] == pytest.approx(result[1], abs=1e-5)

    def test_sequence_beyond_largest_bucket(self):
        with raises(ShapeError, size=9, buckets=[4, 8]):
            BucketCollator(buckets=(4, 8))([{"input_ids": [1] * 9}])

    @pytest.mark.parametrize("options", [{"buckets": ()}, {"buckets": (8, 4)}, {"buckets": (4,), "padding_side": "up"}])
    def test_bad_options(self, options):
        with pytest.raises(ConfigError):
            BucketCollator(**options)


class TestRecompiles:
    @pytest.fixture(autouse=True)
    def fresh(self, no_compiler):
        torch._dynamo.reset()

    @pytest.mark.full(days=4)
    def test_recompiles_are_logged_and_limited(self, train, one_layer, sentences, caplog):
        growing.count = 0
        with raises(ShapeError, option="max_recompiles", value=1) as error:
            train(one_layer, sentences, torch_compile=True, max_recompiles=1, data_collator=growing)
        first, _ = error.value.details["causes"]
        assert "int64[4, 7]" in first and "int64[4, 8]" in first
        assert "training step 2 compiled again, 1 of at most 1" in caplog.text

    @pytest.mark.full(days=2)
    def test_buckets_keep_them_away(self, train, one_layer):
        rows = [{"input_ids": torch.arange(5 + i % 3), "labels": torch.arange(5 + i % 3)} for i in range(16)]
        trainer = train(
            one_layer, rows, torch_compile=True, max_recompiles=0, data_collator=BucketCollator(buckets=(8,))
        )
        assert trainer.state.log_history[-2]["neuron/recompiles"] == 0

    def test_longest_padding_collator_is_logged(self, make, llama, sentences, checkpoint, caplog):
        from transformers import AutoTokenizer, DataCollatorForSeq2Seq

        tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        make(llama, sentences, torch_compile=True, data_collator=DataCollatorForSeq2Seq(tokenizer))
        assert "Pass pad_to_multiple_of=64" in caplog.text
        trainer = make(copy.deepcopy(llama), sentences, torch_compile=True, processing_class=tokenizer)
        assert trainer.data_collator.pad_to_multiple_of == 64


def growing(rows):
    growing.count += 1
    return {name: torch.stack([row[name][: 6 + growing.count] for row in rows]) for name in rows[0]}
