"""Every mistake in a config is reported in one sentence: the field and what to do."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparc_dist.config import find_config, load_config, parse
from sparc_dist.errors import UserError

GOOD: dict[str, Any] = {
    "output": "out",
    "datasets": [{"name": "pets", "images": "pets.csv", "classes": ["cat", "dog"]}],
    "backbones": [{"name": "b32", "model": "ViT-B-32-quickgelu", "weights": "openai"}],
}


def write(folder: Path, config: object) -> str:
    path = folder / "config.yaml"
    path.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
    return str(path)


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(yaml.safe_dump(GOOD))
    change(config)
    return config


def test_a_good_config_with_paths_relative_to_its_folder(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, GOOD))
    assert config.output == str(tmp_path / "out")
    assert config.datasets[0].images == str(tmp_path / "pets.csv")
    assert config.datasets[0].prompts.source == "all-pairs"
    assert config.backbones[0].weights == "openai"
    assert config.method.strategy == "max-variance"


def test_a_file_of_background_classes_is_a_path(tmp_path: Path) -> None:
    raw = changed(lambda c: c["datasets"][0].update(background="names.txt"))
    assert load_config(write(tmp_path, raw)).datasets[0].background == str(tmp_path / "names.txt")
    raw = changed(lambda c: c["datasets"][0].update(background="none"))
    assert load_config(write(tmp_path, raw)).datasets[0].background == "none"


def test_a_checkpoint_file_is_a_path_and_output_can_be_replaced(tmp_path: Path) -> None:
    raw = changed(lambda c: c["backbones"][0].update(weights="models/b32.pt"))
    config = load_config(write(tmp_path, raw), output="s3://bucket/run")
    assert config.backbones[0].weights == str(tmp_path / "models" / "b32.pt")
    assert config.output == "s3://bucket/run"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda c: c.pop("output"), "output: is missing; add it"),
        (lambda c: c.update(outptu="x"), "outptu: unknown key; did you mean 'output'"),
        (lambda c: c.update(datasets=[]), "datasets: .*at least 1"),
        (lambda c: c["datasets"][0].update(clases=[]), "datasets.0.clases: unknown key"),
        (lambda c: c["datasets"][0].update(name="a/b"), "datasets.0.name: must have only"),
        (lambda c: c["datasets"][0].update(name="report"), "'report' is taken"),
        (lambda c: c["datasets"][0].update(classes=["cat", "cat"]), "duplicate class 'cat'"),
        (lambda c: c["datasets"][0].update(classes=[" "]), "' ' has no letter or digit"),
        (lambda c: c["datasets"][0].update(classes=["C++", "C#"]), "'C\\+\\+' and 'C#' are spelt"),
        (lambda c: c["datasets"][0].update(classes=[]), "there are no classes"),
        (lambda c: c["datasets"][0].update(prompts={"source": "labels"}), "needs `labels`"),
        (lambda c: c["datasets"][0].update(prompts={"labels": "x.csv"}), "only read with source"),
        (lambda c: c["datasets"][0].update(prompts={"tau2": 1.5}), "prompts.tau2: .*less than 1"),
        (
            lambda c: c["datasets"].append(c["datasets"][0]),
            "datasets: duplicate name 'pets'",
        ),
        (lambda c: c["backbones"][0].pop("weights"), "`weights` is missing"),
        (lambda c: c["backbones"][0].update(model="ViT-B-32"), "write model: ViT-B-32-quickgelu"),
        (
            lambda c: c["backbones"][0].update(model="RN50", weights="OpenAI"),
            "write model: RN50-quickgelu",
        ),
        (lambda c: c["backbones"][0].update(model="sparc-tiny"), "remove `weights`"),
        (lambda c: c["backbones"][0].update(weights="b32.pt@v1"), "a file has no revision"),
        (lambda c: c["backbones"][0].update(weights="s3://a/b.bin@v1"), "a file has no revision"),
        (lambda c: c["backbones"][0].update(weights="openai@"), "name a commit or a tag"),
        (
            lambda c: c.update(backbones=[{"name": "t", "model": "sparc-tiny", "image_size": 64}]),
            "remove `image_size`",
        ),
        (
            lambda c: c.update(backbones=[{"name": "t", "model": "sparc-tiny", "local_scale": 7}]),
            "`local_scale` needs features: local or both",
        ),
        (
            lambda c: c.update(backbones=[{"name": "t", "model": "simulated", "features": "both"}]),
            "model: simulated has no images; remove `features`",
        ),
        (lambda c: c.update(shard_size=0), r"shard_size: .*greater than or equal to 1 \(it is 0\)"),
        (lambda c: c.update(method={"strategy": "best"}), "method.strategy: .*'kmax'.*'best'"),
        (
            lambda c: c.update(method={"stratgy": "kmax"}),
            "method.stratgy: unknown key; did you mean 'strategy'",
        ),
        (lambda c: c.update(method={"duo": {"rival": 1}}), "method.duo: .*rival is 1"),
        (lambda c: c.update(method={"duo": {"scaling": "half"}}), "method.duo.scaling: .*'sqrt'"),
        (lambda c: c.update(method={"duo": {"rivals": 0}}), "method.duo.rivals: unknown key"),
        (lambda c: c.update(method={"duo": {"shrinkage": -1}}), "method.duo: .*shrinkage is -1"),
        (
            lambda c: c.update(fusions=["best"]),
            "method: .*'best'.*; list one or more of",
        ),
        (lambda c: c.update(fusions=[]), "method: .*list one or more of sparc, duo"),
        (lambda c: c.update(fusions=["duo"], method={"fusions": ["duo"]}), "there twice; remove"),
        (
            lambda c: c.update(method="duo", fusions=["sparc"]),
            "method: .*primary is duo, which is not among the fusions .*list it there",
        ),
        (lambda c: c.update(resources={"gpus_per_scorer": -1}), "resources.gpus_per_scorer"),
        (lambda c: c.update(resources={"gpus_per_scorer": 2}), "less than or equal to 1"),
    ],
)
def test_a_mistake_names_its_field(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], expected: str
) -> None:
    with pytest.raises(UserError, match=expected) as caught:
        load_config(write(tmp_path, changed(change)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [", "not valid YAML at line"),
        ("output: 2024-13-45", "not valid YAML"),
        ("just a sentence", "contains no config"),
        ("", "contains no config"),
    ],
)
def test_what_is_no_config(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        load_config(write(tmp_path, text))


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no config file .*check the path"):
        load_config(str(tmp_path / "none.yaml"))
    with pytest.raises(UserError, match="is a folder"):
        load_config(str(tmp_path))


def test_resources_are_not_part_of_a_runs_identity() -> None:
    faster = changed(lambda c: c.update(resources={"scorers": 4}))
    other = changed(lambda c: c.update(batch_size=1))
    same = parse(GOOD, "x").identity()
    assert parse(faster, "x").identity() == same
    assert parse(other, "x").identity() != same


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(["output", "datasets", "backbones", "method", "resources", "?"]), values)
def test_any_value_is_a_clear_error_or_a_valid_config(key: str, value: object) -> None:
    def attempt() -> str:
        try:
            return f"config.yaml: good, {parse({**GOOD, key: value}, 'config.yaml').output}"
        except UserError as error:
            return str(error)

    assert attempt().startswith("config.yaml: ")


SECRET = "sk-4f2a9c"


@pytest.mark.parametrize(
    "llm",
    [
        SECRET,
        {"base_url": f"https://user:{SECRET}@host/v1", "model": "m"},
        {"base_url": f"https://host/v1?api_key={SECRET}", "model": "m"},
        {"base_url": "https://host/v1", "model": "m", "key_env": SECRET},
        {"base_url": "https://host/v1", "model": "m", "key": SECRET},
    ],
    ids=["bare", "user", "query", "variable", "key"],
)
def test_a_key_in_the_wrong_place_is_refused_and_not_repeated(llm: object) -> None:
    raw = changed(lambda c: c["datasets"][0].update(prompts={"source": "llm", "llm": llm}))
    with pytest.raises(UserError, match=r"datasets\.0\.prompts\.llm") as caught:
        parse(raw, "config.yaml")
    assert SECRET not in str(caught.value)


def test_empty_prompts_mean_the_default() -> None:
    raw = changed(lambda c: c["datasets"][0].update(prompts=None))
    assert parse(raw, "config.yaml").datasets[0].prompts.source == "all-pairs"


def test_fusions_are_listed_at_the_top_or_in_the_method() -> None:
    for more in ({"fusions": ["duo"]}, {"method": {"fusions": ["duo"]}}):
        assert parse({**GOOD, **more}, "test").method.fusions == ("duo",)
    both = parse({**GOOD, "method": "duo", "fusions": ["duo", "sparc"]}, "test")
    assert both.identity() == parse({**GOOD, "method": "duo"}, "test").identity()


def test_a_job_without_config_says_what_is_missing(tmp_path: Path) -> None:
    job = Path(__file__).parents[2] / "jobs" / "run_all.py"
    done = subprocess.run([job], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "There is no config: name one, or set SPARC_CONFIG, or write sparc.yaml" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_config_is_found_where_a_job_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sparc.yaml").write_text("")
    assert find_config(None) == "sparc.yaml"
    monkeypatch.setenv("SPARC_CONFIG", "other.yaml")
    assert find_config(None) == "other.yaml"
    assert find_config("named.yaml") == "named.yaml"


def test_an_output_that_would_be_lost_with_the_job_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "working_dir_files" / "_ray_pkg_1"
    folder.mkdir(parents=True)
    path = folder / "sparc.yaml"
    path.write_text(yaml.safe_dump({**GOOD, "output": "runs/pets"}))
    with pytest.raises(UserError, match=r"'.+' would be in Ray's copy .* a URL\.$"):
        load_config(str(path))
    with pytest.raises(UserError, match=r"'pets\.csv' would be in Ray's copy"):
        load_config(str(path), output="s3://bucket/run")
    data = {**GOOD["datasets"][0], "images": "s3://bucket/pets.csv"}
    path.write_text(yaml.safe_dump({**GOOD, "output": "s3://bucket/run", "datasets": [data]}))
    assert load_config(str(path)).output == "s3://bucket/run"


def test_openais_weights_are_taken_from_their_folder(tmp_path: Path) -> None:
    path = tmp_path / "sparc.yaml"
    raw = {key: value for key, value in GOOD.items() if key != "backbones"}
    path.write_text(yaml.safe_dump({**raw, "weights_folder": "clip"}))
    weights = {backbone.name: backbone.weights for backbone in load_config(str(path)).backbones}
    assert len(weights) == 9
    assert weights["ViT-L-14-336"] == str(tmp_path / "clip" / "ViT-L-14-336px.pt")
    assert weights["RN50x64"] == str(tmp_path / "clip" / "RN50x64.pt")
    pinned = [{**GOOD["backbones"][0], "weights": "openai@v1"}]
    path.write_text(yaml.safe_dump({**GOOD, "backbones": pinned, "weights_folder": "clip"}))
    with pytest.raises(UserError, match="`weights_folder` has no revisions; remove one of the two"):
        load_config(str(path))
