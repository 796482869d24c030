"""Host code that threads run at once (real compiles, a few seconds each)."""

from __future__ import annotations

import sys
import threading
import time
import zipfile

import pytest
import torch

from optimum_neuron.compiler.lower.choose import probe_compiler
from optimum_neuron.compiler.lower.concurrent import concurrent_host, load_concurrent
from optimum_neuron.compiler.lower.inductor import compile_body, load_package
from optimum_neuron.compiler.lower.lower import lower
from optimum_neuron.compiler.serial import body_to_dict
from tests.programs import body_of, compile_module, spec

pytestmark = pytest.mark.skipif(probe_compiler() is None, reason="no C++ compiler on this machine")
SIZE = 384


def chain(x, y, total):
    for _ in range(30):
        x = (x @ y).tanh()
    total.add_(x.sum())
    return x, x.sum(0)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    body = body_of(chain, spec(SIZE, SIZE), spec(SIZE, SIZE), spec(), num_outputs=2)
    output = tmp_path_factory.mktemp("package") / "sub_0.pt2"
    compile_body(body_to_dict(body), "inductor", output)
    return output


def inputs():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(SIZE, SIZE, generator=generator) / 20 for _ in range(2)] + [torch.zeros(())]


def test_it_gives_what_the_binding_gives_and_writes_in_place(package):
    mine, theirs = inputs(), inputs()
    found, wanted = load_concurrent(package, 2)(mine), load_package(package)(theirs)
    assert len(found) == 2 and all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert torch.equal(mine[2], theirs[2]) and mine[2] != 0


def seen_by_another_thread(function):
    """Whether Python code of another thread runs while the function does."""
    inside, seen = threading.Event(), []
    given = inputs()

    def call():
        inside.set()
        function(given)
        inside.clear()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # a thread that has Python's lock keeps it until it lets go
    try:
        thread = threading.Thread(target=call)
        thread.start()
        while thread.is_alive():
            seen.append(inside.is_set())
            time.sleep(0)
    finally:
        sys.setswitchinterval(interval)
    return any(seen)


def test_it_lets_go_of_the_lock_of_python(package):
    assert seen_by_another_thread(load_concurrent(package, 2))


def test_many_threads_get_their_own_results(package):
    function, wanted, wrong = load_concurrent(package, 2), load_package(package)(inputs())[0], []

    def call():
        for _ in range(5):
            if not torch.equal(function(inputs())[0], wanted):
                wrong.append(1)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_package_that_needs_torch_to_call_an_operator_keeps_the_binding(package, tmp_path):
    other = tmp_path / "sub_1.pt2"
    with zipfile.ZipFile(package) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
            if name.endswith(".so"):
                new.writestr(name.removesuffix(".so") + ".json", "{}")
    assert load_concurrent(other, 2) is None


def test_host_code_of_a_program(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 8), torch.nn.Softmax(-1))
    program = compile_module(module, {"x": spec(4, 8)}).program
    host = lower(program, optlevel="2", root=tmp_path)
    assert {choice.value for choice in host.choices.values()} == {"inductor"}
    (name,) = host.functions
    given = [torch.randn(*part.shape) for part in program.subprograms[name].inputs]
    (found,), (wanted,) = (code.functions[name](given) for code in (concurrent_host(host, 2, root=tmp_path), host))
    assert torch.equal(found, wanted)
    plain = lower(program, optlevel="1")
    assert concurrent_host(plain, 2).functions == plain.functions
