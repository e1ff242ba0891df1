"""The switches for speed: what they change, and that each can be turned off."""

import os

import pytest
import torch
from mmdet.models import FPN, ResNet
from torch import nn

from autodrive.engine import precision
from autodrive.engine.precision import (
    DEFAULTS,
    cpu_has_bf16,
    set_environment,
    speed_options,
    speed_up,
)
from autodrive.engine.train import build_runner
from tests.autodrive.toy_training import toy_config


class Camera(nn.Module):
    def __init__(self, extra: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.img_backbone = ResNet(
            depth=18,
            base_channels=16,
            num_stages=3,
            strides=(1, 2, 2),
            dilations=(1, 1, 1),
            out_indices=(2,),
        )
        self.img_neck = FPN([64], 32, 1)
        if extra is not None:
            self.img_backbone.layer2.add_module("extra", extra)

    def forward(self, images):
        return self.img_neck(self.img_backbone(images))[0]


def gradients(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.float().flatten() for p in model.parameters()])


@pytest.mark.parametrize("bf16", [False, True])
def test_channels_last_gives_the_same_values_and_survives_every_layer(bf16, capsys):
    """K36."""
    images = torch.randn(2, 3, 64, 96, generator=torch.Generator().manual_seed(1))
    results = []
    for switched in (False, True):
        model = Camera().train()
        speed_up(model, {**DEFAULTS, "channels_last": switched})
        layouts = {}

        def note(name, layouts=layouts):
            def hook(module, inputs, image):
                if isinstance(image, torch.Tensor):
                    layouts[name] = image.is_contiguous(memory_format=torch.channels_last)

            return hook

        for name, module in model.named_modules():
            module.register_forward_hook(note(name))
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            output = model(images)
        output.float().square().mean().backward()
        results.append((output.float(), gradients(model)))
        assert all(layouts.values()) == switched
    (nchw, nchw_grad), (nhwc, nhwc_grad) = results
    tolerance = 2e-2 if bf16 else 1e-3
    assert torch.allclose(nchw, nhwc, atol=tolerance * nchw.abs().max().item())
    assert nhwc_grad.isfinite().all()
    assert torch.allclose(nchw_grad, nhwc_grad, atol=tolerance * nchw_grad.abs().max().item())
    assert capsys.readouterr().err == ""


class Contiguous(nn.Module):
    def forward(self, x):
        return x.contiguous()


def test_layer_that_loses_the_layout_is_named_once(capsys):
    """K36."""
    model = Camera(extra=Contiguous())
    speed_up(model, {**DEFAULTS, "channels_last": True})
    images = torch.randn(1, 3, 64, 96)
    model(images)
    said = capsys.readouterr().err
    assert "channels_last is lost in img_backbone.layer2.extra (2 layers give NCHW)" in said
    model(images)
    assert capsys.readouterr().err == ""
    assert not any(module._forward_hooks for module in model.modules())


def test_switches_keep_parameter_names():
    names = list(Camera().state_dict())
    model = Camera()
    speed_up(model, {**DEFAULTS, "channels_last": True, "compile": True})
    assert list(model.state_dict()) == names


@pytest.fixture
def clean_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("MIOPEN_", "PYTORCH_MIOPEN_", "PYTORCH_TUNABLEOP_")):
            monkeypatch.delenv(name)
    kept = dict(os.environ)
    yield monkeypatch
    for name in set(os.environ) - set(kept):
        del os.environ[name]


def rocm_variables() -> dict[str, str]:
    prefixes = ("MIOPEN_", "PYTORCH_MIOPEN_", "PYTORCH_TUNABLEOP_")
    return {name: value for name, value in os.environ.items() if name.startswith(prefixes)}


def test_rocm_variables_are_set_on_rocm_only(clean_environment, tmp_path):
    speed = {**DEFAULTS, "channels_last": True, "miopen_db": str(tmp_path), "tunable_op": "use"}
    clean_environment.setattr(torch.version, "hip", None)
    set_environment(speed)
    assert rocm_variables() == {}
    clean_environment.setattr(torch.version, "hip", "7.0")
    set_environment(speed)
    assert rocm_variables() == {
        "PYTORCH_MIOPEN_SUGGEST_NHWC": "1",
        "PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM": "1",
        "MIOPEN_USER_DB_PATH": str(tmp_path / "db"),
        "MIOPEN_CUSTOM_CACHE_DIR": str(tmp_path / "cache"),
        "PYTORCH_TUNABLEOP_ENABLED": "1",
        "PYTORCH_TUNABLEOP_TUNING": "0",
    }
    assert (tmp_path / "db").is_dir() and (tmp_path / "cache").is_dir()


def test_everything_off_sets_nothing_and_the_user_wins(clean_environment):
    clean_environment.setattr(torch.version, "hip", "7.0")
    set_environment(DEFAULTS)
    assert rocm_variables() == {}
    clean_environment.setenv("PYTORCH_MIOPEN_SUGGEST_NHWC", "0")
    set_environment({**DEFAULTS, "channels_last": True})
    assert os.environ["PYTORCH_MIOPEN_SUGGEST_NHWC"] == "0"


@pytest.mark.parametrize(
    ("speed", "expected"),
    [
        ({"fp8": True}, r"speed has no \['fp8'\]"),
        ({"tunable_op": True}, r'must be "", "tune" or "use"'),
    ],
)
def test_wrong_switch_is_refused(speed, expected):
    with pytest.raises(ValueError, match=expected):
        speed_options({"speed": speed})


@pytest.mark.parametrize(
    ("machine", "flags", "expected"),
    [
        ("x86_64", "flags : fpu avx512f avx512_bf16", True),
        ("x86_64", "flags : fpu amx_bf16", True),
        ("x86_64", "flags : fpu avx2 avx512f", False),
        ("aarch64", "Features : fp asimd bf16", True),
        ("aarch64", "Features : fp asimd", False),
    ],
)
def test_bf16_instructions_are_found(monkeypatch, tmp_path, machine, flags, expected):
    monkeypatch.setattr(precision.platform, "machine", lambda: machine)
    (tmp_path / "cpuinfo").write_text(f"processor : 0\n{flags}\n")
    assert cpu_has_bf16(tmp_path / "cpuinfo") is expected
    assert cpu_has_bf16(tmp_path / "nothing") is False


@pytest.mark.parametrize("available", [True, False])
def test_bf16_runs_in_training_where_the_cpu_has_it(tmp_path, monkeypatch, capsys, available):
    monkeypatch.setattr("autodrive.engine.train.cpu_has_bf16", lambda: available)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    dtypes = set()
    config = toy_config(2, validate=False)
    config.speed = dict(bf16=True)
    runner = build_runner(config, tmp_path)
    runner.model.layers[0].register_forward_hook(lambda m, i, output: dtypes.add(output.dtype))
    runner.train()
    assert dtypes == ({torch.bfloat16} if available else {torch.float32})
    assert ("no bf16 instructions" in capsys.readouterr().out) != available


def test_compiled_backbone_is_called_compiled(monkeypatch):
    compiled = []
    monkeypatch.setattr(nn.Module, "compile", lambda self: compiled.append(type(self).__name__))
    speed_up(Camera(), {**DEFAULTS, "compile": True})
    assert compiled == ["ResNet", "FPN"]
