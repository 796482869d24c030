"""Blocks are shared by content, kept while there is room, and taken in the order of their last use."""

import random

import pytest

from optimum_neuron.batching import BlockPool, chain_hashes


def test_a_hash_depends_on_all_tokens_before_it():
    first, second = chain_hashes([1, 2, 3, 4, 5], 2), chain_hashes([9, 2, 3, 4], 2)
    assert [len(one) for one in first] == [16, 16]
    assert not set(first) & set(second)
    assert chain_hashes([1, 2, 3, 4], 2) == first
    assert chain_hashes([1, 2], 2, key=b"adapter") != first[:1]


def test_blocks_are_found_until_they_are_needed():
    pool = BlockPool(num_blocks=4, block_size=2)
    hashes = chain_hashes([1, 2, 3, 4], 2)
    blocks = [pool.allocate(), pool.allocate()]
    for block, content in zip(blocks, hashes, strict=True):
        pool.publish(block, content)
    assert pool.find(hashes) == blocks
    for block in reversed(blocks):
        pool.release(block)
    assert (pool.num_free, pool.num_used, pool.num_cached) == (3, 0, 2)
    pool.share(blocks[0])
    assert pool.num_free == 2
    assert {pool.allocate(), pool.allocate()} == {3, blocks[1]}
    assert pool.find(hashes) == blocks[:1]
    with pytest.raises(IndexError):
        pool.allocate()


def test_the_block_that_is_longest_unused_is_taken_first():
    pool = BlockPool(num_blocks=4, block_size=1)
    blocks = [pool.allocate() for _ in range(3)]
    assert blocks == [1, 2, 3]
    for block in blocks:
        pool.publish(block, bytes([block]))
    for block in (2, 3, 1):
        pool.release(block)
    pool.share(2)
    pool.release(2)
    assert [pool.allocate() for _ in range(3)] == [3, 1, 2]


def test_a_spoilt_block_is_reported_when_it_is_allocated_again():
    pool = BlockPool(num_blocks=3, block_size=1)
    block = pool.allocate()
    pool.publish(block, b"content")
    pool.spoil([block])
    pool.release(block)
    pool.share(*pool.find([b"content"]))
    assert pool.take_reused() == []
    pool.release(block)
    assert block in (pool.allocate(), pool.allocate())
    assert (pool.take_reused(), pool.take_reused()) == ([block], [])
    pool.release(block)
    assert (pool.allocate(), pool.take_reused()) == (block, [])


def test_no_block_is_lost_or_given_twice():
    draw, pool, held = random.Random(0), BlockPool(num_blocks=9, block_size=1), []
    for number in range(2000):
        action = draw.random()
        if action < 0.5 and pool.num_free:
            block = pool.allocate()
            assert block not in held
            held.append(block)
            pool.publish(block, bytes([number % 16]))
        elif held and action < 0.8:
            pool.release(held.pop(draw.randrange(len(held))))
        elif found := pool.find([bytes([number % 16])]):
            pool.share(found[0])
            held.append(found[0])
        if number % 100 == 0:
            pool.forget_all()
            assert pool.num_cached == 0
        assert pool.num_free + len(set(held)) == pool.num_usable
        assert 0 not in held


def test_a_block_has_one_content_and_a_content_one_block():
    pool = BlockPool(num_blocks=4, block_size=2)
    first, second = pool.allocate(), pool.allocate()
    pool.publish(first, b"a")
    pool.publish(first, b"b")
    pool.publish(second, b"a")
    assert (pool.find([b"a"]), pool.find([b"b"]), pool.num_cached) == ([first], [], 1)
    pool.release(second)
    assert not pool.is_idle(second) and pool.num_free == 2
