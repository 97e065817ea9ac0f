"""cluster.yaml, jobs/rayjob.yaml, jobs/rayservice.yaml and jobs/Dockerfile: Ray, botocore and
KubeRay accept them, what they name exists and agrees, and they hold no keys.

No cloud is contacted: the checks use code of Ray and botocore that is installed here.
"""

import re
import shlex
import socket
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import botocore.validate
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from ray.autoscaler._private.kuberay import autoscaling_config as kuberay
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
from ray.scripts.scripts import start as ray_start
from ray.serve.schema import ServeDeploySchema

from sparc_dist import __version__
from sparc_dist.config import Config, parse
from sparc_dist.serving.settings import SETTINGS, TOKEN, ServiceSettings

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FILES = ("cluster.yaml", "jobs/rayjob.yaml", "jobs/rayservice.yaml", "jobs/Dockerfile")
TEXTS = {name: (ROOT / name).read_text() for name in FILES}
CLUSTER: dict[str, Any] = yaml.safe_load(TEXTS["cluster.yaml"])
NODE_TYPES: dict[str, dict[str, Any]] = CLUSTER["available_node_types"]
WORKERS = {name: node for name, node in NODE_TYPES.items() if name != CLUSTER["head_node_type"]}
ACCOUNT, CONFIG_MAP, JOB = yaml.safe_load_all(TEXTS["jobs/rayjob.yaml"])
RAY_CLUSTER: dict[str, Any] = JOB["spec"]["rayClusterSpec"]
HEAD: dict[str, Any] = RAY_CLUSTER["headGroupSpec"]
GROUPS: list[dict[str, Any]] = RAY_CLUSTER["workerGroupSpecs"]
RAY_PODS: list[dict[str, Any]] = [group["template"]["spec"] for group in (HEAD, *GROUPS)]
PODS = [*RAY_PODS, JOB["spec"]["submitterPodTemplate"]["spec"]]
SERVE_ACCOUNT, SERVICE = yaml.safe_load_all(TEXTS["jobs/rayservice.yaml"])
SERVE_CLUSTER: dict[str, Any] = SERVICE["spec"]["rayClusterConfig"]
(LABEL_GROUP,) = SERVE_CLUSTER["workerGroupSpecs"]
SERVE_PODS: list[dict[str, Any]] = [
    group["template"]["spec"] for group in (SERVE_CLUSTER["headGroupSpec"], LABEL_GROUP)
]


@pytest.fixture(autouse=True)
def _nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a test of files has no business on a network")

    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def images() -> Iterator[str]:
    """Every container image that is named, wherever it stands."""
    yield from re.findall(r"(?m)^FROM (\S+)", TEXTS["jobs/Dockerfile"])
    yield from (pod["containers"][0]["image"] for pod in (*PODS, *SERVE_PODS))
    cluster = AutoscalingConfig(CLUSTER, skip_content_hash=True)
    yield from (cluster.get_docker_config(name)["image"] for name in NODE_TYPES)


def started(commands: str) -> dict[str, Any]:
    """The options of ``ray start`` as Ray itself understands them."""
    (line,) = [command for command in CLUSTER[commands] if "ray start" in command]
    words = shlex.split(line.partition("ray start")[2])
    options: dict[str, Any] = ray_start.make_context("start", words).params
    return options


def test_ray_accepts_the_cluster() -> None:
    config = prepare_config(CLUSTER)
    validate_config(config)
    assert config["max_workers"] == sum(node["max_workers"] for node in WORKERS.values())


@pytest.mark.parametrize("name", NODE_TYPES)
def test_amazon_knows_every_field_of_a_machine(name: str) -> None:
    launch = botocore.session.get_session().get_service_model("ec2").operation_model("RunInstances")
    machine = NODE_TYPES[name]["node_config"]
    counted = machine | {"MinCount": 1, "MaxCount": 1}
    botocore.validate.validate_parameters(counted, launch.input_shape)
    assert machine["InstanceType"] in launch.input_shape.members["InstanceType"].enum
    assert re.fullmatch("ami-[0-9a-f]{17}", machine["ImageId"])


def test_ray_is_started_with_its_disk_and_its_autoscaler_and_without_telemetry() -> None:
    head, worker = started("head_start_ray_commands"), started("worker_start_ray_commands")
    assert head["head"]
    assert head["disable_usage_stats"]
    assert head["autoscaling_config"] == "~/ray_bootstrap_config.yaml"
    assert worker["address"] == f"$RAY_HEAD_IP:{head['port']}"
    assert head["object_manager_port"] == worker["object_manager_port"]
    spill = head["object_spilling_directory"]
    assert spill == worker["object_spilling_directory"]
    assert f"mkdir -p {spill}" in CLUSTER["setup_commands"]


def test_strangers_reach_no_machine_and_containers_have_no_root() -> None:
    cluster = AutoscalingConfig(CLUSTER, skip_content_hash=True)
    for name, node in NODE_TYPES.items():
        # Otherwise Ray's launcher makes a group that lets in ssh from anywhere.
        assert all(
            re.fullmatch("sg-[0-9a-f]{17}", g) for g in node["node_config"]["SecurityGroupIds"]
        )
        assert re.search(r"@sha256:[0-9a-f]{64}$", cluster.get_docker_config(name)["image"])
    assert "--user=ray" in CLUSTER["docker"]["run_options"]


def test_images_have_the_very_version_of_ray() -> None:
    (demanded,) = (r for r in map(Requirement, PROJECT["dependencies"]) if r.name == "ray")
    for image in images():
        tag = image.partition("@")[0]
        found = re.fullmatch(r"[\w./-]+:(?:[\w.]+-ray)?(\d+\.\d+\.\d+)(?:-py3(\d+)-\w+)?", tag)
        assert found, image
        assert found[1] == RAY_CLUSTER["rayVersion"]
        assert found[1] in demanded.specifier
        if found[2]:
            assert f"3.{found[2]}" in SpecifierSet(PROJECT["requires-python"])
    assert SERVE_CLUSTER["rayVersion"] == RAY_CLUSTER["rayVersion"]
    assert f"ray[default]=={RAY_CLUSTER['rayVersion']}" in TEXTS["cluster.yaml"]
    built = {tag for text in TEXTS.values() for tag in re.findall(r"/sparc-dist:(\S+)", text)}
    assert built == {f"{__version__}-ray{RAY_CLUSTER['rayVersion']}"}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "pattern",
    [
        r":latest\b",
        r"\b(AKIA|ASIA)[A-Z0-9]{16}\b",
        r"(?i)(secret_access_key|access_key_id|session_token|password)",
        r"RAY_AUTH_TOKEN\b",
        "PRIVATE KEY",
        "(?m)^kind: Secret",
        r"0\.0\.0\.0",
        "NodePort|LoadBalancer|hostNetwork|hostPath|privileged",
        "(?i)RAY_AUTH_MODE=disabled|mode: disabled",
    ],
)
def test_what_must_not_be_in_a_file(name: str, pattern: str) -> None:
    assert not re.search(pattern, TEXTS[name])


@pytest.mark.parametrize(
    ("name", "places"), [("cluster.yaml", 5), ("jobs/rayjob.yaml", 3), ("jobs/rayservice.yaml", 3)]
)
def test_the_places_to_edit_are_numbered(name: str, places: int) -> None:
    numbers = sorted({int(number) for number in re.findall(r"# EDIT (\d)", TEXTS[name])})
    assert numbers == list(range(1, places + 1))
    assert f"{'Five' if places == 5 else 'Three'} places to edit are marked EDIT" in TEXTS[name]


@pytest.mark.parametrize("name", FILES)
def test_scripts_that_a_file_names_are_here(name: str) -> None:
    named = set(re.findall(r"\bjobs/[\w.]+", TEXTS[name]))
    assert all((ROOT / path).is_file() for path in named), named
    assert name.endswith(("file", "service.yaml")) or "jobs/run_all.py" in named


def test_what_the_image_is_made_of_is_here() -> None:
    copied = re.findall(r"(?m)^COPY --chown=\S+ (.+) \S+$", TEXTS["jobs/Dockerfile"])
    assert all((ROOT / path).exists() for line in copied for path in line.split())
    (folder,) = re.findall(r"(?m)^WORKDIR (\S+)$", TEXTS["jobs/Dockerfile"])
    assert shlex.split(JOB["spec"]["entrypoint"])[1] == f"{folder}/jobs/run_all.py"


def test_ray_scales_the_job_from_nothing() -> None:
    """What Ray's autoscaler makes of the groups."""
    named = {"metadata": {"name": "sparc", "namespace": "default"}, "spec": RAY_CLUSTER}
    groups = kuberay._derive_autoscaling_config_from_ray_cr(named)["available_node_types"]
    head = groups.pop("headgroup")
    assert head["resources"]["CPU"] == 0
    assert sorted(node["resources"].get("GPU", 0) for node in groups.values()) == [0, 1]
    assert all(node["min_workers"] == 0 < node["max_workers"] for node in groups.values())
    assert RAY_CLUSTER["enableInTreeAutoscaling"] is True
    asked = run_config().resources
    for kind, wanted in (("GPU", asked.gpus), ("CPU", asked.cpus)):
        most = sum(n["max_workers"] * n["resources"].get(kind, 0) for n in groups.values())
        assert 0 < (wanted or 0) <= most


def run_config() -> Config:
    return parse(yaml.safe_load(CONFIG_MAP["data"]["sparc.yaml"]), "sparc.yaml")


def test_the_run_of_the_job_is_right_and_is_found() -> None:
    assert run_config().output.startswith("s3://")
    (volume,) = (v["name"] for v in RAY_PODS[0]["volumes"] if "configMap" in v)
    (folder,) = (
        mount["mountPath"]
        for mount in RAY_PODS[0]["containers"][0]["volumeMounts"]
        if mount["name"] == volume
    )
    assert RAY_PODS[0]["volumes"][1]["configMap"]["name"] == CONFIG_MAP["metadata"]["name"]
    assert shlex.split(JOB["spec"]["entrypoint"])[2] == f"{folder}/sparc.yaml"


@pytest.mark.parametrize("group", [HEAD, *GROUPS], ids=["head", "score", "decode"])
def test_a_pod_of_ray_has_its_role_and_its_disk(group: dict[str, Any]) -> None:
    pod = group["template"]["spec"]
    assert pod["serviceAccountName"] == ACCOUNT["metadata"]["name"]
    (spill,) = (v for v in pod["volumes"] if "emptyDir" in v)
    mounts = {m["name"]: m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
    options = [f"--{name}={value}" for name, value in group["rayStartParams"].items()]
    known = ray_start.make_context("start", options).params
    assert mounts[spill["name"]] == known["object_spilling_directory"]


def test_ray_serve_accepts_the_service() -> None:
    config = ServeDeploySchema.model_validate(yaml.safe_load(SERVICE["spec"]["serveConfigV2"]))
    (application,) = config.applications
    assert application.import_path == "sparc_dist.serving:app"
    assert '".[serve]"' in TEXTS["jobs/Dockerfile"].replace("'", '"')


def environment(pod: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry for entry in pod["containers"][0]["env"]}


def test_the_service_is_set_up_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    head, worker = map(environment, SERVE_PODS)
    assert head == worker  # the head builds the application, a worker runs it
    # Not optional: without a token the service must not start, for it listens on all interfaces.
    assert {*worker.pop(TOKEN)["valueFrom"]["secretKeyRef"]} == {"name", "key"}
    values = {name: entry["value"] for name, entry in worker.items()}
    assert {*SETTINGS.items()} <= {*values.items()}
    for name in (name for name in values if name.startswith("SPARC_")):
        monkeypatch.setenv(name, values[name])
        assert name.removeprefix("SPARC_").lower() in ServiceSettings.model_fields
    settings = ServiceSettings.from_environment()
    assert settings.labeler.startswith("s3://")
    cpus = int(SERVE_PODS[1]["containers"][0]["resources"]["limits"]["cpu"])
    assert settings.threads_each <= cpus
    assert settings.replicas <= LABEL_GROUP["maxReplicas"]


def test_ray_starts_the_workers_of_the_service() -> None:
    named = {"metadata": {"name": "sparc", "namespace": "default"}, "spec": SERVE_CLUSTER}
    groups = kuberay._derive_autoscaling_config_from_ray_cr(named)["available_node_types"]
    assert groups["headgroup"]["resources"]["CPU"] == 0
    assert groups["label"]["min_workers"] == groups["label"]["max_workers"] == 2


@pytest.mark.parametrize("pod", SERVE_PODS, ids=["head", "label"])
def test_a_pod_of_the_service_has_its_role_and_no_more(pod: dict[str, Any]) -> None:
    assert pod["serviceAccountName"] == SERVE_ACCOUNT["metadata"]["name"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
