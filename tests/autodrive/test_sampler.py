"""Which key frames each process sees, and in which order."""

from itertools import islice
from types import SimpleNamespace

import pytest

from autodrive.data.sampler import QueueSampler, SceneSampler, shares

SCENES = ["a"] * 5 + ["b"] * 1 + ["c"] * 7 + ["d"] * 3


@pytest.mark.parametrize(("count", "parts"), [(7, 2), (1, 2), (8, 3), (0, 2), (100, 8)])
def test_every_key_frame_once_and_in_order(count, parts):
    """K52"""
    found = shares([f"scene {i}" for i in range(count)], parts)
    assert len(found) == parts
    assert [index for part in found for index in part] == list(range(count))
    sizes = [len(part) for part in found]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("parts", range(1, 7))
def test_scenes_of_different_length_are_never_split(parts):
    """K52"""
    found = shares(SCENES, parts)
    assert [index for part in found for index in part] == list(range(len(SCENES)))
    homes = {
        scene: {p for p in range(parts) for i in found[p] if SCENES[i] == scene} for scene in "abcd"
    }
    assert all(len(parts_of_scene) == 1 for parts_of_scene in homes.values())


def as_rank(monkeypatch, rank, world_size):
    monkeypatch.setattr("autodrive.data.sampler.get_dist_info", lambda: (rank, world_size))


def test_processes_share_the_test_set_by_scene(monkeypatch):
    """K52"""
    dataset = SimpleNamespace(scene_tokens=SCENES)
    seen = []
    for rank in range(3):
        as_rank(monkeypatch, rank, 3)
        sampler = SceneSampler(dataset)
        assert len(list(sampler)) == len(sampler)
        seen += sampler
    assert seen == list(range(len(SCENES)))


def test_shuffling_a_test_stream_is_refused():
    with pytest.raises(ValueError, match="shuffle must be False"):
        SceneSampler(SimpleNamespace(scene_tokens=SCENES), shuffle=True)


def rows(monkeypatch, count, rank=0, world_size=1, start=0, **options):
    as_rank(monkeypatch, rank, world_size)
    sampler = QueueSampler(range(10), seed=3, **options)
    sampler.start = start
    return list(islice(sampler, count))


def test_endless_row_has_every_key_frame_once_an_epoch_and_another_order_each(monkeypatch):
    row = rows(monkeypatch, 30)
    epochs = [row[:10], row[10:20], row[20:]]
    for number, epoch in enumerate(epochs):
        assert {(seed, e) for seed, e, _ in epoch} == {(3, number)}
        assert sorted(index for _, _, index in epoch) == list(range(10))
    orders = [[index for _, _, index in epoch] for epoch in epochs]
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_resumed_row_goes_on_where_it_stopped(monkeypatch):
    assert rows(monkeypatch, 15, start=9) == rows(monkeypatch, 24)[9:]


def test_processes_together_see_the_row_of_one(monkeypatch):
    parts = [rows(monkeypatch, 8, rank, 3) for rank in range(3)]
    assert [item for items in zip(*parts) for item in items] == rows(monkeypatch, 24)


def test_one_pass_gives_every_process_as_many_and_all_are_there(monkeypatch):
    parts = [rows(monkeypatch, 99, rank, 4, infinite=False) for rank in range(4)]
    assert [len(part) for part in parts] == [3] * 4
    assert {index for part in parts for _, _, index in part} == set(range(10))


def test_set_epoch_changes_the_order_of_a_pass(monkeypatch):
    as_rank(monkeypatch, 0, 1)
    sampler = QueueSampler(range(10), infinite=False)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert [index for _, _, index in sampler] != [index for _, _, index in first]
    assert {epoch for _, epoch, _ in sampler} == {1}
