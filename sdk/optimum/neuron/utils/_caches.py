"""The shared compile cache of this user, and the cache of this machine, by the names of Optimum Neuron."""

from __future__ import annotations

import os
from pathlib import Path

from optimum_neuron.base import env
from optimum_neuron.compiler.cache import FILE, choose, shared_url


def load_custom_cache_repo_name_from_hf_home(hf_home_cache_repo_file: str | Path | None = None) -> str | None:
    """Return the shared cache that this user chose; None: none was chosen."""
    file = Path(hf_home_cache_repo_file or env.hf_home() / FILE)
    return (file.read_text(encoding="utf-8").strip() or None) if file.is_file() else None


def set_custom_cache_repo_name_in_hf_home(
    repo_id: str, hf_home: str | Path | None = None, check_repo: bool = True
) -> None:
    """Choose the shared cache of this user.

    Args:
        repo_id: repository on the Hub, URL, or folder.
        hf_home: root folder of the Hugging Face libraries; None: HF_HOME.
        check_repo: check that it exists.

    Raises:
        CacheError: it does not exist, or cannot be reached.
    """
    if check_repo and hf_home is None:
        choose(repo_id)
        return
    file = Path(hf_home or env.hf_home()) / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{repo_id}\n", encoding="utf-8")


def delete_custom_cache_repo_name_from_hf_home(hf_home_cache_repo_file: str | Path | None = None) -> None:
    """Forget the choice of a shared cache."""
    Path(hf_home_cache_repo_file or env.hf_home() / FILE).unlink(missing_ok=True)


def get_hf_hub_cache_repo(log_warnings: bool = False) -> str | None:
    """Return the shared cache that compiles use; None: none was chosen.

    Args:
        log_warnings: accepted for compatibility: nothing is reached, so there is nothing to warn of.
    """
    url = shared_url().value
    return None if url is None else url.removeprefix("hf://")


def get_neuron_cache_path() -> Path | None:
    """Return the folder of the compile cache; None: it is switched off."""
    return None if env.no_compile_cache() else Path(env.compile_cache_url())


def set_neuron_cache_path(neuron_cache_path: str | Path, ignore_no_cache: bool = False) -> None:
    """Let this process, and those that it starts, use another folder as the compile cache.

    Args:
        neuron_cache_path: the folder.
        ignore_no_cache: switch the cache on if NEURON_CC_FLAGS has --no_cache.

    Raises:
        ValueError: NEURON_CC_FLAGS has --no_cache.
    """
    words = os.environ.get("NEURON_CC_FLAGS", "").split()
    if "--no_cache" in words and not ignore_no_cache:
        raise ValueError("NEURON_CC_FLAGS has --no_cache, which switches the compile cache off.")
    words = [word for word in words if word != "--no_cache" and not word.startswith("--cache_dir")]
    os.environ["NEURON_CC_FLAGS"] = " ".join(words)
    os.environ["NEURON_COMPILE_CACHE_URL"] = str(neuron_cache_path)
