"""Behaviour of the detector over batches and time."""

import numpy as np
import pytest
import torch

from autodrive.data.preprocessor import MultiViewImagePreprocessor
from autodrive.data.transforms import NormalizeMultiView, PadMultiView
from autodrive.geometry.projection import project_points
from examples.bevformer.grid_mask import GridMask
from tests.examples.bevformer.small_model import IMG_SHAPE, batch, make_sample, small_model


@torch.no_grad()
def test_samples_of_a_batch_do_not_influence_each_other():
    """K49: other poses, other history, one sample without history; eval mode."""
    model = small_model().eval()
    samples = [make_sample(0), make_sample(1, history=False), make_sample(2)]
    together = model(*batch(*samples), mode="tensor")
    for b, sample in enumerate(samples):
        alone = model(*batch(sample), mode="tensor")
        torch.testing.assert_close(together.logits[:, b], alone.logits[:, 0], atol=1e-4, rtol=0)
        torch.testing.assert_close(together.boxes[:, b], alone.boxes[:, 0], atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_first_frame_has_no_history():
    """K54: without a predecessor frames before do not matter, and it is no BEV of zeros either."""
    model = small_model().eval()
    images, sample = make_sample(0, history=False)
    other = images.clone()
    other[0] = 0
    expected = model(*batch((images, sample)), mode="tensor").logits
    assert torch.equal(model(*batch((other, sample)), mode="tensor").logits, expected)

    sample.set_metainfo(dict(prev_bev_exists=np.array([False, True])))
    model.history = lambda *_: torch.zeros(1, 80, 32)
    assert not torch.allclose(model(*batch((images, sample)), mode="tensor").logits, expected)


def test_projection_is_normalised_by_the_padded_size():
    """K54: a point on pixel (800, 450) of an image padded from 900 to 928 rows."""
    lidar2img = torch.eye(4)
    lidar2img[:2, 2] = torch.tensor([800.0, 450.0])
    uv, visible = project_points(
        torch.tensor([[0.0, 0.0, 10.0]]), lidar2img.view(1, 1, 4, 4), (928, 1600)
    )
    assert visible.all()
    torch.testing.assert_close(uv.flatten(), torch.tensor([0.5, 450 / 928]))


def test_queue_that_crosses_a_scene_border_starts_anew_there():
    model = small_model().eval()
    images, sample = make_sample(0, frames=3)
    sample.set_metainfo(dict(prev_bev_exists=np.array([False, False, True])))
    with torch.no_grad():
        expected = model(*batch((images, sample)), mode="tensor").logits
        images = images.clone()
        images[0] = 0
        assert torch.equal(model(*batch((images, sample)), mode="tensor").logits, expected)


def stream(model, samples):
    """Boxes and scores of single-frame samples in the order given."""
    results = []
    for sample in samples:
        (result,) = model(*batch(sample), mode="predict")
        results.append(result.pred_instances_3d)
    return results


def scene_of(seed, scene, frames):
    return [make_sample(seed + t, 1, scene, time=float(t)) for t in range(frames)]


def same(a, b):
    if a.bboxes_3d.tensor.shape != b.bboxes_3d.tensor.shape:
        return False
    return torch.allclose(a.bboxes_3d.tensor, b.bboxes_3d.tensor, atol=1e-3) and torch.allclose(
        a.scores_3d, b.scores_3d, atol=1e-5
    )


def test_stream_remembers_within_a_scene_and_forgets_across():
    model = small_model().eval()
    first, second = scene_of(0, "a", 3), scene_of(10, "b", 2)
    streamed = stream(model, first + second)
    fresh = [stream(small_model().eval(), [sample])[0] for sample in first + second]
    assert same(streamed[0], fresh[0]) and same(streamed[3], fresh[3])
    assert not same(streamed[1], fresh[1]) and not same(streamed[4], fresh[4])
    assert list(model._memory) == ["b"]


def test_stream_of_several_scenes_in_one_batch_equals_one_by_one():
    """K49, in the test stream; also two frames of one scene in one batch."""
    first, second = scene_of(0, "a", 3), scene_of(10, "b", 3)
    expected = stream(small_model().eval(), first) + stream(small_model().eval(), second)
    model = small_model().eval()
    found_first, found_second = [], []
    for pair in zip(first, second):
        a, b = model(*batch(*pair), mode="predict")
        found_first.append(a.pred_instances_3d)
        found_second.append(b.pred_instances_3d)
    assert all(same(a, b) for a, b in zip(found_first + found_second, expected))

    model = small_model().eval()
    results = model(*batch(*first), mode="predict")
    assert all(same(a.pred_instances_3d, b) for a, b in zip(results, expected[:3]))


def test_new_evaluation_starts_fresh():
    model = small_model().eval()
    frames = scene_of(0, "a", 2)
    before = stream(model, frames)
    model.train()
    model.eval()
    assert all(same(a, b) for a, b in zip(before, stream(model, frames)))
    # The same scene again without a switch in between: time went back, so it is the scene's
    # beginning.
    assert all(same(a, b) for a, b in zip(before, stream(model, frames)))


def test_stream_makes_can_bus_relative():
    """The motion since the last frame counts, not where in the world it happened."""
    frames = scene_of(0, "a", 3)
    expected = stream(small_model().eval(), frames)
    moved = scene_of(0, "a", 3)
    for _, sample in moved:
        can_bus = sample.can_bus.copy()
        can_bus[:, :3] += 1000.0
        can_bus[:, 17] += 90.0
        sample.set_metainfo(dict(can_bus=can_bus))
    found = stream(small_model().eval(), moved)
    assert all(same(a, b) for a, b in zip(found, expected))


def test_history_has_no_gradient_and_training_mode_returns():
    model = small_model(dropout=0.5, grid_mask=True).train()
    images, sample = make_sample(0)
    bev = model.history(images[None, :1], [sample], np.array([[False, True]]))
    assert not bev.requires_grad and model.training and model.pts_bbox_head.training
    again = model.history(images[None, :1], [sample], np.array([[False, True]]))
    assert torch.equal(bev, again)


def test_bf16_autocast_trains():
    model = small_model().train()
    samples = [make_sample(seed) for seed in range(2)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    values = []
    for _ in range(8):
        with torch.autocast("cpu", torch.bfloat16):
            losses = model(*batch(*samples), mode="loss")
        total = sum(losses.values())
        assert total.dtype == torch.float32
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        values.append(total.item())
    assert values[-1] < 0.9 * values[0]


def test_grid_mask_drops_pixels_only_in_training():
    mask = GridMask(prob=1.0)
    images = torch.ones(2, 6, 3, *IMG_SHAPE)
    torch.manual_seed(0)
    kept = mask.train()(images)
    assert 0 < kept.mean() < 1
    assert torch.equal(kept, kept[:1, :1, :1].expand_as(kept))
    assert torch.equal(mask.eval()(images), images)


def test_preprocessor_equals_the_pipeline():
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (45, 70, 3), dtype=np.uint8) for _ in range(2)]
    settings = dict(mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375), to_rgb=True)
    frame = PadMultiView()(NormalizeMultiView(**settings)({"img": images}))
    expected = torch.from_numpy(np.stack(frame["img"]).transpose(0, 3, 1, 2))
    raw = torch.from_numpy(np.stack(images).transpose(0, 3, 1, 2)).unsqueeze(0)
    data = {"inputs": {"img": [raw]}, "data_samples": []}
    (found,) = MultiViewImagePreprocessor(**settings)(data)["inputs"]["img"]
    torch.testing.assert_close(found[0], expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(TypeError, match="must be uint8"):
        MultiViewImagePreprocessor(**settings)({"inputs": {"img": [raw.float()]}})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("lidar2img", np.zeros((2, 5, 4, 4)), r"lidar2img .* must be \(2, 6, 4, 4\)"),
        ("can_bus", np.zeros((2, 17)), r"can_bus .* must be \(2, 18\), got \(2, 17\)"),
    ],
)
def test_wrong_metainfo_is_named(key, value, message):
    images, sample = make_sample(0)
    sample.set_metainfo({key: value})
    with pytest.raises(ValueError, match=message):
        small_model()(*batch((images, sample)), mode="loss")


def test_images_of_different_size_in_a_batch_are_named():
    first, second = make_sample(0), make_sample(1)
    with pytest.raises(ValueError, match=r'inputs\["img"\] must be tensors of one shape'):
        small_model()(*batch((first[0][..., :32], first[1]), second), mode="loss")
