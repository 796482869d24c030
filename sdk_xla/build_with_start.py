"""Build backend: setuptools, and the file that Python reads at its start, for which setuptools has no option."""

from __future__ import annotations

import base64
import hashlib
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  (the other hooks)

(PACKAGE,) = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
"""The only package of this distribution; Python imports it at its start, so that it can answer for another name."""


def build_wheel(wheel_directory: str, *arguments: Any) -> str:
    """Build a wheel with the file."""
    return _with_start(wheel_directory, build_meta.build_wheel(wheel_directory, *arguments))


def build_editable(wheel_directory: str, *arguments: Any) -> str:
    """Build the wheel of an editable installation with the file."""
    return _with_start(wheel_directory, build_meta.build_editable(wheel_directory, *arguments))


def _with_start(folder: str, name: str) -> str:
    path, content = Path(folder, name), f"import {PACKAGE}\n".encode()
    with zipfile.ZipFile(path) as wheel:
        files = {file: wheel.read(file) for file in wheel.namelist()}
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    record = next(file for file in files if file.endswith(".dist-info/RECORD"))
    files[record] += f"{PACKAGE}.pth,sha256={digest},{len(content)}\n".encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file, data in {f"{PACKAGE}.pth": content, **files}.items():
            wheel.writestr(file, data)
    return name
