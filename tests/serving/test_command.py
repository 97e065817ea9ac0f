"""sparc-dist serve: what it refuses before it starts a Ray; the settings of the service."""

from __future__ import annotations

import importlib.util
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray._common.utils import import_attr

from sparc_dist.cli import main
from sparc_dist.errors import UserError
from sparc_dist.runs.labeler_file import read_labeler, write_labeler
from sparc_dist.serving.settings import ServiceSettings
from tests.support.command import sparc_dist_process
from tests.support.service import free_port

Output = pytest.CaptureFixture[str]


def refused(capsys: Output, *arguments: object) -> str:
    # Another program may listen at the default port; a later --port replaces this one.
    assert main(["serve", "--port", str(free_port()), *map(str, arguments)]) == 2
    return capsys.readouterr().err


def test_what_cannot_be_served_is_refused_at_once(
    labeler_file: Path, tmp_path: Path, capsys: Output
) -> None:
    assert "There is no labeler at" in refused(capsys, tmp_path / "no.safetensors")
    assert "takes no weights" in refused(capsys, labeler_file, "--weights", "openai")
    (tmp_path / "bad.safetensors").write_bytes(labeler_file.read_bytes()[:-1])
    assert "is damaged" in refused(capsys, tmp_path / "bad.safetensors")
    fitted = read_labeler(str(labeler_file))
    assert fitted.model is not None
    fitted.model.backbone.update(model="ViT-S-32-alt", weights="/gone/small.pt")
    write_labeler(str(tmp_path / "gone.safetensors"), fitted)
    assert "no weights file /gone/small.pt" in refused(capsys, tmp_path / "gone.safetensors")


@pytest.mark.ray
@pytest.mark.slow
def test_what_only_a_replica_finds_out_is_one_line_too(labeler_file: Path, tmp_path: Path) -> None:
    fitted = read_labeler(str(labeler_file))
    assert fitted.model is not None
    other = replace(fitted, model=replace(fitted.model, weights_sha256="0" * 64))
    write_labeler(str(tmp_path / "other.safetensors"), other)
    done = sparc_dist_process("serve", tmp_path / "other.safetensors", "--port", free_port())
    assert done.returncode == 2
    assert done.stderr.startswith("sparc-dist: The labeler was fitted with weights of sparc-tiny")
    assert done.stderr.count("\n") == 1


def test_a_public_address_needs_a_token(
    labeler_file: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARC_TOKEN", raising=False)
    everywhere = socket.inet_ntoa(bytes(4))
    assert "set SPARC_TOKEN to a secret" in refused(capsys, labeler_file, "--host", everywhere)
    assert "no address of this machine" in refused(
        capsys, labeler_file, "--host", "nowhere.invalid"
    )


def test_a_port_that_is_taken_is_refused(labeler_file: Path, capsys: Output) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert f"--port {port} is taken" in refused(capsys, labeler_file, "--port", port)
    assert "not allowed" in refused(capsys, labeler_file, "--port", 70_000)


def test_a_cluster_is_not_for_this_command(
    labeler_file: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    assert "serve run sparc_dist.serving:app" in refused(capsys, labeler_file)


def test_without_the_extra_it_says_what_to_install(
    labeler_file: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: Any = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "fastapi" else found(name)
    )
    assert "pip install 'sparc-dist[serve]'" in refused(capsys, labeler_file)


def test_serve_run_finds_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARC_LABELER", "s3://bucket/labeler.safetensors")
    monkeypatch.setenv("SPARC_REPLICAS", "3")
    monkeypatch.setenv("SPARC_THREADS", "2")
    monkeypatch.setenv("SPARC_GPUS", "0.5")
    deployment: Any = import_attr("sparc_dist.serving:app")._bound_deployment
    assert deployment.num_replicas == 3
    assert deployment.ray_actor_options["num_gpus"] == 0.5
    assert deployment.ray_actor_options["num_cpus"] == 2
    (settings,) = deployment.init_args
    assert settings == ServiceSettings(
        labeler="s3://bucket/labeler.safetensors", replicas=3, gpus=0.5, threads=2
    )


def test_settings_of_the_environment_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARC_LABELER", raising=False)
    with pytest.raises(UserError, match="SPARC_LABELER is not set"):
        ServiceSettings.from_environment()
    for text in ("many", "-1"):
        monkeypatch.setenv("SPARC_MAX_BYTES", text)
        with pytest.raises(UserError, match=f"SPARC_MAX_BYTES is .{text}.; set it to a number, 0"):
            ServiceSettings.from_environment(labeler="x")
    monkeypatch.setenv("SPARC_MAX_BYTES", "5")
    assert ServiceSettings.from_environment(labeler="x", replicas=None).max_bytes == 5
