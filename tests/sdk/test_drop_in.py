"""Scripts for Optimum Neuron find its behavior under `optimum.neuron`: each test is one that its documentation shows.

References are transformers, diffusers, torch, and the layout of neuronx-cc's compile cache.
"""

from __future__ import annotations

import gc
import logging
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch
import transformers

import optimum_neuron
from optimum_neuron.errors import CacheError, ConfigError, ModelError, NotExportedError, ShapeError
from optimum_neuron.hardware import TARGETS
from tests.encoders import save_tiny_encoder, tiny_shapes
from tests.tiny import SHAPES, save_tokenizer

pytest.importorskip("optimum.neuron", reason="the sdk distribution is not installed")

TEXT = {"batch_size": 1, "sequence_length": 8, "optlevel": "1"}
IDS = torch.randint(3, 90, (1, 8), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return save_tiny_encoder(tmp_path_factory.mktemp("bert"), "bert", "fill-mask")


@pytest.fixture(scope="module")
def classifier(bert):
    from optimum.neuron import NeuronModelForSequenceClassification

    return NeuronModelForSequenceClassification.from_pretrained(bert, export=True, **TEXT)


@pytest.fixture(scope="module")
def decoder(export_folder):
    from optimum.neuron import NeuronModelForCausalLM

    return NeuronModelForCausalLM.from_pretrained(export_folder)


def test_marks_of_tests(request):
    for name in ("slow", "is_trainium_test", "is_inferentia_test"):
        request.config.addinivalue_line("markers", f"{name}: as in Optimum Neuron's tests")
    from optimum.neuron.utils.testing_utils import is_inferentia_test, is_trainium_test, requires_neuronx, slow

    def function():
        return 1

    assert requires_neuronx(function)() == 1
    marked = slow(is_trainium_test(is_inferentia_test(function)))
    assert {mark.name for mark in marked.pytestmark} == {"slow", "is_trainium_test", "is_inferentia_test"}


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 0.7), (5, 1.0), (5, 0.7)])
def test_fused_warper_keeps_tokens_of_transformers(top_k, top_p):
    from optimum.neuron.generation import FusedLogitsWarper

    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(0))
    warpers = [transformers.TemperatureLogitsWarper(0.8)]
    warpers += [transformers.TopKLogitsWarper(top_k)] if top_k else []
    warpers += [transformers.TopPLogitsWarper(top_p)] if top_p < 1 else []
    expected = transformers.LogitsProcessorList(warpers)(None, logits)
    settings = transformers.GenerationConfig(do_sample=True, temperature=0.8, top_k=top_k, top_p=top_p)
    kept, tokens = FusedLogitsWarper.from_config(settings)(logits)
    actual = torch.full_like(logits, float("-inf")).scatter(-1, tokens, kept)
    torch.testing.assert_close(actual, expected)


def test_fused_warper_without_filter_is_refused_for_sampling():
    from optimum.neuron.generation import FusedLogitsWarper

    with pytest.raises(ConfigError) as excinfo:
        FusedLogitsWarper.from_config(transformers.GenerationConfig(do_sample=True, top_k=0, top_p=1.0))
    assert excinfo.value.details == {"options": ["top_k", "top_p"]}


def make_cache(folder):
    """Entries as neuronx-cc leaves them: compiled, failed, locked, interrupted, and one of an older compiler."""
    from optimum.neuron.utils.version_utils import get_neuronxcc_version

    current, old = folder / f"neuronxcc-{get_neuronxcc_version()}", folder / "neuronxcc-1.0+old"
    files = {
        current / "MODULE_good": ("model.neff", "model.done"),
        current / "MODULE_failed": ("model.log", "model.hlo_module.pb"),
        current / "MODULE_locked": ("model.hlo_module.pb.lock", "model.hlo_module.pb"),
        current / "MODULE_empty": ("model.hlo_module.pb",),
        old / "MODULE_good": ("model.neff", "model.done"),
    }
    for entry, names in files.items():
        entry.mkdir(parents=True)
        for name in names:
            (entry / name).write_bytes(b"12345678")
    return current, old


def test_status_and_cleanup_of_a_cache(tmp_path):
    from optimum.neuron.cache.cleanup import cleanup_local_cache, get_local_cache_status

    current, old = make_cache(tmp_path)
    status = get_local_cache_status(tmp_path)
    counts = (status.success_count, status.failed_count, status.locked_count, status.empty_count)
    assert counts == (2, 1, 1, 1) and status.total_size_bytes == 9 * 8 and status.old_version_size_bytes == 16
    assert "Failed:       1  (16 B)" in status.summary()
    planned = cleanup_local_cache(tmp_path, dry_run=True)
    assert (planned.failed_removed, planned.bytes_freed) == (1, 24) and (current / "MODULE_failed").exists()
    cleaned = cleanup_local_cache(tmp_path)
    assert (cleaned.failed_removed, cleaned.locks_removed, cleaned.bytes_freed) == (1, 1, 24)
    assert {path.name for path in current.iterdir()} == {"MODULE_good", "MODULE_locked", "MODULE_empty"}
    assert cleanup_local_cache(tmp_path, remove_empty=True, remove_old_versions=True).old_versions_removed == [old.name]
    assert cleanup_local_cache(tmp_path, wipe=True).wiped and not tmp_path.exists()


def test_cleanup_waits_for_a_compiler(tmp_path, monkeypatch):
    from optimum.neuron.cache import cleanup

    current, _ = make_cache(tmp_path)
    monkeypatch.setattr(cleanup.psutil, "process_iter", lambda names: [SimpleNamespace(info={"name": "neuronx-cc"})])
    result = cleanup.cleanup_local_cache(tmp_path)
    assert result.failed_removed == 0 and "running" in result.skipped_locks_reason
    assert (current / "MODULE_failed").exists()


def test_cache_of_this_package_has_the_same_layout(classifier):
    from optimum.neuron.cache.cleanup import get_local_cache_status

    status = get_local_cache_status()
    assert status.success_count >= 1 and status.current_compiler_version in status.compiler_versions


def conflict(status):
    from huggingface_hub.errors import HfHubHTTPError

    return HfHubHTTPError("a conflict", response=MagicMock(status_code=status))


def make_proxy():
    from optimum.neuron.cache.hub_cache import CompileCacheHfProxy

    proxy = CompileCacheHfProxy.__new__(CompileCacheHfProxy)
    proxy.repo_id, proxy.api, proxy.default_cache = "org/cache", MagicMock(), MagicMock(cache_path="/a/cache")
    proxy.api.model_info.side_effect = [MagicMock(sha=f"commit_{number}") for number in range(9)]
    return proxy


def test_copy_of_a_cache_is_tried_again_after_a_conflict(monkeypatch):
    from optimum.neuron.cache import hub_cache

    proxy, pauses = make_proxy(), []
    monkeypatch.setattr(hub_cache.time, "sleep", pauses.append)
    proxy.api.upload_folder.side_effect = [conflict(412), conflict(409), None]
    proxy.synchronize()
    parents = [call.kwargs["parent_commit"] for call in proxy.api.upload_folder.call_args_list]
    assert parents == ["commit_0", "commit_1", "commit_2"] and len(pauses) == 2
    proxy = make_proxy()
    proxy.api.upload_folder.side_effect = conflict(500)
    with pytest.raises(OSError, match="a conflict"):
        proxy.synchronize()
    assert proxy.api.upload_folder.call_count == 1 and len(pauses) == 2


def test_unknown_repository_is_a_cache_error(tmp_path, monkeypatch):
    from optimum.neuron.cache.hub_cache import create_hub_compile_cache_proxy

    monkeypatch.setattr("huggingface_hub.HfApi.repo_exists", lambda self, name: False)
    with pytest.raises(CacheError) as excinfo:
        create_hub_compile_cache_proxy(tmp_path, "org/none")
    assert excinfo.value.details == {"repo_id": "org/none"}


def test_shared_cache_and_folder_of_a_cache(tmp_path, monkeypatch):
    from optimum.neuron.utils import cache_utils

    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", "")
    monkeypatch.setenv("NEURON_CC_FLAGS", "--no_cache -O1")
    cache_utils.set_custom_cache_repo_name_in_hf_home("org/cache", check_repo=False)
    assert cache_utils.load_custom_cache_repo_name_from_hf_home() == cache_utils.get_hf_hub_cache_repo() == "org/cache"
    cache_utils.delete_custom_cache_repo_name_from_hf_home()
    assert cache_utils.load_custom_cache_repo_name_from_hf_home() is None
    with pytest.raises(ValueError, match="--no_cache"):
        cache_utils.set_neuron_cache_path(tmp_path)
    cache_utils.set_neuron_cache_path(tmp_path / "neffs", ignore_no_cache=True)
    assert cache_utils.get_neuron_cache_path() == tmp_path / "neffs"


def test_servers_divide_the_visible_cores(monkeypatch):
    from optimum.neuron.vllm import server_manager

    started = []
    monkeypatch.setattr(server_manager.subprocess, "Popen", lambda command, env: started.append((command, env)))
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "1, 4-6")
    manager = server_manager.VLLMServerManager(ports=[9001, 9002], tp_size=2, vllm_args=["--model", "smollm2"])
    manager.start()
    assert [env["NEURON_RT_VISIBLE_CORES"] for _, env in started] == ["1,4", "5-6"]
    assert [command[command.index("--port") + 1] for command, _ in started] == ["9001", "9002"]
    assert all(command[-2:] == ["--model", "smollm2"] for command, _ in started)
    with pytest.raises(ConfigError) as excinfo:
        server_manager.VLLMServerManager(ports=[9001], tp_size=5, vllm_args=[]).start()
    assert excinfo.value.details == {"rank": 0, "num_cores": 5, "available": [1, 4, 5, 6]}


def test_servers_are_watched_and_stopped(monkeypatch):
    from optimum.neuron.vllm import server_manager

    monkeypatch.setattr(server_manager, "_POLL_S", 0.0)
    running, stuck, ended = MagicMock(), MagicMock(), MagicMock()
    running.poll.return_value = stuck.poll.return_value = None
    ended.poll.side_effect = [None, 3, 3]
    stuck.wait.side_effect = [server_manager.subprocess.TimeoutExpired("serve", 1), 0]
    manager = server_manager.VLLMServerManager(ports=[1, 2, 3], tp_size=1, vllm_args=[])
    manager._processes = [running, stuck, ended]
    assert manager.monitor() == 3
    manager.shutdown()
    assert running.terminate.called and not running.kill.called
    assert stuck.kill.called and not ended.terminate.called and manager.monitor() is None


def test_ports_behind_a_port():
    serve = pytest.importorskip("optimum.commands.neuron.serve", reason="an older installation of the sdk")
    assert serve._allocate_internal_ports(8080, 2) == [8081, 8082]
    with pytest.raises(ConfigError) as excinfo:
        serve._allocate_internal_ports(65534, 2)
    assert excinfo.value.details == {"port": 65534, "count": 2}


def test_configuration_of_a_decoder_is_saved_alone(tmp_path):
    from optimum.neuron.configuration_utils import NeuronConfig
    from optimum.neuron.models.inference.backend.config import NxDNeuronConfig, NxDVLMNeuronConfig

    config = NxDNeuronConfig(
        batch_size=8, sequence_length=512, torch_dtype=torch.float16, tp_degree=4, continuous_batching=True
    )
    assert (config.tp_degree, config.world_size, config.torch_dtype) == (4, 4, torch.float16)
    assert (config.max_context_length, config.ctx_batch_size, config.tkg_batch_size) == (512, 1, 8)
    config.save_pretrained(tmp_path)
    assert NxDNeuronConfig.from_pretrained(tmp_path) == config == NeuronConfig.from_pretrained(tmp_path)
    assert isinstance(NeuronConfig.from_pretrained(tmp_path), NxDNeuronConfig)
    assert not isinstance(config, NxDVLMNeuronConfig)
    assert NxDNeuronConfig().torch_dtype == torch.bfloat16 and NxDNeuronConfig().sequence_length == 128
    for target in (one for one in TARGETS.values() if one.compilable):
        assert NxDNeuronConfig(target=target.name).logical_nc_config == target.chip.default_lnc
    with pytest.raises(ConfigError) as excinfo:
        NxDNeuronConfig(ep_degree=2)
    assert excinfo.value.details == {"options": {"ep_degree": 2}}


def test_configuration_names_the_exported_checkpoint(export_folder, checkpoint, decoder, tmp_path):
    from optimum.neuron.configuration_utils import NeuronConfig

    config = NeuronConfig.from_pretrained(export_folder)
    assert config.checkpoint_id == decoder.neuron_config.checkpoint_id == str(checkpoint)
    with pytest.raises(ConfigError) as excinfo:
        config.save_pretrained(export_folder)
    assert excinfo.value.details == {"folder": str(export_folder)}


def test_checkpoint_is_not_exported_without_being_told(bert):
    from optimum.neuron import NeuronModelForMaskedLM, NeuronTracedModel, pipeline

    for load in (NeuronTracedModel.from_pretrained, NeuronModelForMaskedLM.from_pretrained):
        with pytest.raises(FileNotFoundError) as excinfo:
            load(bert)
        assert isinstance(excinfo.value, NotExportedError)
    with pytest.raises(NotExportedError):
        pipeline("fill-mask", str(bert), tokenizer=MagicMock())


def test_program_of_a_model_is_a_script_module(classifier, bert, tmp_path):
    from torch_neuronx import replace_weights

    inputs = (IDS, torch.ones_like(IDS), torch.zeros_like(IDS))
    assert isinstance(classifier.model, torch.jit.ScriptModule)
    expected = classifier(*inputs).logits
    torch.testing.assert_close(classifier.model(*inputs)[0], expected)
    torch.jit.save(classifier.model, str(tmp_path / "model.pt"))
    loaded = torch.jit.load(str(tmp_path / "model.pt"))
    torch.testing.assert_close(loaded(*inputs)[0], expected)
    other = transformers.AutoModelForSequenceClassification.from_pretrained(bert).eval()
    replace_weights(classifier.model, other.state_dict())
    with torch.no_grad():
        wanted = other(*inputs).logits
    torch.testing.assert_close(classifier.model(*inputs)[0], wanted, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(classifier(*inputs).logits, wanted, atol=1e-5, rtol=1e-4)


def test_program_of_a_model_is_closed_with_it_and_may_outlive_it(bert):
    from optimum.neuron import NeuronModelForSequenceClassification

    inputs = (IDS, torch.ones_like(IDS), torch.zeros_like(IDS))
    first, second = (NeuronModelForSequenceClassification.from_pretrained(bert, export=True, **TEXT) for _ in range(2))
    script, expected = first.model, first(*inputs).logits
    torch.testing.assert_close(script(*inputs)[0], expected)
    del first
    gc.collect()
    for _ in range(2):
        torch.testing.assert_close(script(*inputs)[0], expected)
    script.close()
    second.model.close()
    for closed in (script, second):
        with pytest.raises(RuntimeError, match="closed"):
            closed(*inputs)


def test_missing_head_is_filled_and_named(classifier, tmp_path):
    assert "classifier.weight" in classifier.config.neuron["random_weights"]
    classifier.save_pretrained(tmp_path / "saved")
    saved = transformers.AutoConfig.from_pretrained(tmp_path / "saved")
    assert saved.neuron["random_weights"] == classifier.config.neuron["random_weights"]


@pytest.mark.parametrize("seed", [0, 42])
def test_missing_head_is_that_of_transformers_from_the_same_seed(bert, seed):
    from optimum.neuron import NeuronModelForSequenceClassification

    transformers.set_seed(seed)
    model = NeuronModelForSequenceClassification.from_pretrained(bert, export=True, **TEXT)
    transformers.set_seed(seed)
    original = transformers.AutoModelForSequenceClassification.from_pretrained(bert, dtype=torch.float32).eval()
    with torch.no_grad():
        torch.testing.assert_close(model(IDS).logits, original(IDS).logits, atol=1e-5, rtol=1e-4)


def test_option_of_other_models_is_ignored_here_only(tmp_path, caplog):
    from optimum.neuron import NeuronModelForImageClassification

    folder = save_tiny_encoder(tmp_path / "vit", "vit", "image-classification")
    options = tiny_shapes("vit", "image-classification") | {"sequence_length": 32, "disable_validation": True}
    with caplog.at_level(logging.INFO, logger="optimum_neuron"):
        model = NeuronModelForImageClassification.from_pretrained(folder, export=True, **options)
    assert model.neuron_config.sequence_length is None and model.neuron_config.ATOL_FOR_VALIDATION is None
    assert any("sequence_length=32" in record.getMessage() for record in caplog.records)
    with pytest.raises(ConfigError) as excinfo:
        optimum_neuron.NeuronModelForImageClassification.from_pretrained(folder, export=True, **options)
    assert excinfo.value.details["option"] == "sequence_length"


def test_results_of_layers_that_were_not_exported_are_ignored(classifier):
    result = classifier(IDS, output_attentions=True, output_hidden_states=True)
    assert result.hidden_states is None and result.attentions is None


def test_features_and_pipeline_of_sentences(tmp_path):
    from optimum.neuron import NeuronSentenceTransformers, pipeline

    folder = save_tiny_encoder(tmp_path / "bert", "bert", "feature-extraction")
    model = NeuronSentenceTransformers.from_pretrained(folder, export=True, disable_validation=True, **TEXT)
    features = model(input_ids=IDS, attention_mask=torch.ones_like(IDS))
    again = model(**features)  # sentence-transformers adds its results to the features that it gets
    torch.testing.assert_close(again.sentence_embedding, features.sentence_embedding)
    tokenizer = transformers.AutoTokenizer.from_pretrained(save_tokenizer(tmp_path / "tokenizer"))
    vector = pipeline("feature-extraction", model=model, tokenizer=tokenizer)("abc")
    ids = {name: tensor for name, tensor in tokenizer("abc", return_tensors="pt").items() if name != "token_type_ids"}
    torch.testing.assert_close(torch.tensor(vector), model(**ids).sentence_embedding[0])


def test_objects_of_both_packages_are_instances(classifier, model):
    from optimum.neuron import NeuronModelForCausalLM, NeuronTracedModel

    assert isinstance(classifier, NeuronTracedModel) and isinstance(classifier, optimum_neuron.NeuronTracedModel)
    assert isinstance(model, NeuronModelForCausalLM) and not isinstance(model, NeuronTracedModel)
    assert issubclass(type(classifier), NeuronTracedModel)


def test_sequences_continue_by_their_numbers(decoder, original):
    from optimum.neuron.models.inference.backend.modules.generation.generation_utils import (
        increase_position_ids,
        position_ids_from_attention_mask,
    )

    prompts = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    positions = position_ids_from_attention_mask(mask)
    rows, params = torch.tensor([0, 2]), torch.ones(2, 3)
    logits = decoder(prompts, position_ids=positions, seq_ids=rows, sampling_params=params)
    alone = decoder(prompts[:1], position_ids=positions[:1], seq_ids=torch.tensor([1]), sampling_params=params[:1])
    with torch.no_grad():
        expected = torch.stack([original(prompts[:1]).logits[0, -1], original(prompts[1:, :2]).logits[0, -1]])
    torch.testing.assert_close(logits[:, 0], expected, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(alone, logits[:1], atol=1e-5, rtol=1e-4)
    token = torch.tensor([[11], [12], [13]])
    ids, positions = torch.tensor([2, 0, 1]), torch.tensor([[2], [4], [4]])
    assert increase_position_ids(torch.tensor([[0, 1, 1]]), 1).tolist() == [[2]]
    logits = decoder(token, position_ids=positions, seq_ids=ids, sampling_params=torch.ones(3, 3))
    with torch.no_grad():
        texts = ([9, 10, 11], [5, 6, 7, 8, 12], [5, 6, 7, 8, 13])
        expected = torch.stack([original(torch.tensor([text])).logits[0, -1] for text in texts])
    torch.testing.assert_close(logits[:, 0], expected, atol=1e-4, rtol=1e-3)
    for wrong in (torch.tensor([7]), torch.tensor([0])):
        with pytest.raises(ShapeError) as excinfo:
            decoder(token[:1], position_ids=positions[:1], seq_ids=wrong, sampling_params=params[:1])
        assert excinfo.value.details["rows"] == ([7] if wrong == 7 else [2])
    decoder.reset()


def test_decoder_is_configured_and_exported_in_two_steps(checkpoint):
    from optimum.neuron import NeuronModelForCausalLM

    options = {"batch_size": 1, "sequence_length": SHAPES["sequence_length"], "tensor_parallel_size": 1}
    config = NeuronModelForCausalLM.get_neuron_config(checkpoint, **options)
    assert (config.batch_size, config.tp_degree, config.checkpoint_id) == (1, 1, str(checkpoint))


def test_components_of_a_pipeline_are_made_by_pipelines_only():
    from optimum.neuron.modeling_diffusion import NeuronModelUnet

    with pytest.raises(ModelError) as excinfo:
        NeuronModelUnet()
    assert excinfo.value.details == {"name": "NeuronModelUnet"}
    assert not isinstance(torch.nn.Linear(1, 1), NeuronModelUnet)
