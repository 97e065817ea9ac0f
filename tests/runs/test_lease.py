"""One writer per output: processes that race, die, hang, wait and are told who is first."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from sparc_dist import api, storage
from sparc_dist.errors import UserError
from sparc_dist.pipeline import scheduling
from sparc_dist.runs import RunLayout, lease, names_of_run
from sparc_dist.runs.lease import Held, Writer, writer_of, writing
from sparc_dist.runs.run import open_run
from tests.support.command import COMMAND, sparc_dist
from tests.support.memory_s3 import BUCKET
from tests.support.s3 import FaultProxy, read_only
from tests.support.waiting import until

#: Takes the lease of each root on its input, says whether it has it, and holds it to the next line,
#: or, if that is "lost", until another process takes it over.
WRITER = """
import json, sys, time
from sparc_dist.errors import UserError
from sparc_dist.runs import lease

lease.LOOKED_EVERY = 0.05
print("ready", flush=True)
for line in sys.stdin:
    root, wait, lease.RENEWED_EVERY = json.loads(line)
    try:
        with lease.writing(root, wait):
            print("won", flush=True)
            while sys.stdin.readline() == "lost\\n":
                end = time.monotonic() + 60
                while time.monotonic() < end:
                    lease.check()
                    time.sleep(0.02)
            lease.check()
    except UserError as error:
        print(error, flush=True)
    else:
        print("released", flush=True)
"""


class Process:
    """Another process that writes; what it logs is among what it says. is_free: it has no lease."""

    def __init__(self) -> None:
        self.is_free = True
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.said() == "ready"

    def tell(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def said(self) -> str:
        assert self.process.stdout is not None
        said = self.process.stdout.readline().strip()
        self.is_free = said != "won" and not said.startswith("waiting")
        return said

    def begin(self, root: str, wait: bool = False, renewed: float = 15) -> None:
        """Lets it take a lease; ``said`` returns whether it has it."""
        self.is_free = False
        self.tell(json.dumps([root, wait, renewed]))

    def takes(self, root: str, renewed: float = 15) -> str:
        self.begin(root, renewed=renewed)
        return self.said()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


#: Processes that wait for work, by the store that they know: each takes a second to start.
_waiting: defaultdict[str | None, list[Process]] = defaultdict(list)


@pytest.fixture(scope="module", autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    for each in itertools.chain.from_iterable(_waiting.values()):
        each.end()
    _waiting.clear()


@contextmanager
def processes(count: int) -> Iterator[list[Process]]:
    waiting = _waiting[os.environ.get("AWS_ENDPOINT_URL")]
    taken = [waiting.pop() if waiting else Process() for _ in range(count)]
    try:
        yield taken
    finally:
        for each in taken:
            if each.is_free and each.process.poll() is None:
                waiting.append(each)
            else:
                each.end()


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.s3)])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where nothing is, on disk or in a store that keeps conditions."""
    if request.param == "s3":
        request.getfixturevalue("on_conditional_s3")
        return f"s3://{BUCKET}/{uuid4().hex}"
    return str(tmp_path / "run")


@pytest.fixture
def make_old(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Makes it a minute and more since a lease was renewed."""

    def make(root: str) -> None:
        url, then = RunLayout(root).lease, time.time() - 61
        if storage.is_remote(root):
            objects = request.getfixturevalue("conditional_s3").objects
            key = url.removeprefix("s3://")
            objects[key] = replace(objects[key], written=then)
        else:
            os.utime(url, (then, then))

    return make


def stored(root: str) -> Writer:
    found = storage.read_versioned(RunLayout(root).lease)
    assert found is not None
    return Writer.parse(found.content)


def elsewhere() -> Writer:
    """A process of another machine."""
    return replace(Writer.here(), host="far", process=17, machine="another")


def test_of_two_that_start_at_once_one_writes(root: str) -> None:
    with processes(2) as both:
        for turn in range(10):
            place = f"{root}/{turn}"
            for one in both:
                one.begin(place)
            said = {one: one.said() for one in both}
            (winner,) = [one for one in both if said[one] == "won"]
            (refusal,) = [text for text in said.values() if text != "won"]
            assert f"{place} is being written by host " in refusal
            assert f"process {winner.process.pid}, since 20" in refusal
            winner.tell()
            assert winner.said() == "released"


def test_a_lease_is_released_and_taken_again(root: str) -> None:
    with processes(1) as (other,):
        for _ in range(2):
            with writing(root):
                assert stored(root).process == os.getpid()
                assert f"process {os.getpid()}, since" in other.takes(root)
                assert f"process {os.getpid()}, since" in str(writer_of(root))
            assert writer_of(root) is None
            assert other.takes(root) == "won"
            with pytest.raises(Held, match=f"process {other.process.pid}, since 20.* --wait"):
                writing(root).__enter__()
            other.tell()
            assert other.said() == "released"
    if not storage.is_remote(root):
        assert os.listdir(root) == []


def test_a_process_that_was_killed_is_replaced_at_once(root: str) -> None:
    with processes(1) as (other,):
        assert other.takes(root) == "won"
        other.process.kill()
        # Not even waited for: what is left of it is its exit code.
        assert until(lambda: writer_of(root) is None, 10)
        with writing(root):
            assert stored(root).process == os.getpid()


def test_a_later_process_of_the_same_number_is_another(tmp_path: Path) -> None:
    content = replace(Writer.here(), started="1").content()
    storage.create(RunLayout(str(tmp_path)).lease, content)
    with writing(str(tmp_path)):
        pass


def test_a_lease_from_elsewhere_is_free_a_minute_after_its_last_renewal(tmp_path: Path) -> None:
    file = Path(RunLayout(str(tmp_path)).lease)
    storage.create(str(file), elsewhere().content())
    os.utime(file, (time.time() - 50,) * 2)
    with pytest.raises(Held, match=r"by host far, process 17, since .*, renewed 5\d s ago"):
        writing(str(tmp_path)).__enter__()
    os.utime(file, (time.time() - 61,) * 2)
    with writing(str(tmp_path)):
        assert stored(str(tmp_path)).process == os.getpid()


def test_a_damaged_lease_is_free_when_it_is_old(tmp_path: Path) -> None:
    file = Path(RunLayout(str(tmp_path)).lease)
    for content in (b"", b"[1]", b'{"id": 3, "what": 4}'):
        file.write_bytes(content)
        with pytest.raises(Held, match="host unknown"):
            writing(str(tmp_path)).__enter__()
        os.utime(file, (time.time() - 61,) * 2)
        with writing(str(tmp_path)):
            pass


def test_of_two_that_take_over_at_once_one_writes(
    root: str, make_old: Callable[[str], None]
) -> None:
    with processes(2) as both:
        for turn in range(10):
            place = f"{root}/{turn}"
            storage.create(RunLayout(place).lease, elsewhere().content())
            make_old(place)
            for one in both:
                one.begin(place)
            said = [one.said() for one in both]
            assert said.count("won") == 1, said
            both[said.index("won")].tell()
            assert both[said.index("won")].said() == "released"


def test_a_lease_is_renewed_while_its_process_lives(root: str) -> None:
    with processes(1) as (other,):
        assert other.takes(root, renewed=0.1) == "won"
        seen = stored(root).renewals
        assert until(lambda: stored(root).renewals > seen + 5, 20)
        assert writer_of(root)


def test_who_lost_the_lease_stops(root: str, make_old: Callable[[str], None]) -> None:
    with processes(2) as (first, second):
        assert first.takes(root, renewed=0.3) == "won"
        first.process.send_signal(signal.SIGSTOP)
        make_old(root)
        assert second.takes(root) == "won"
        first.process.send_signal(signal.SIGCONT)
        first.tell("lost")
        said = first.said()
        assert "was taken over by host " in said
        assert f"process {second.process.pid}" in said
        assert stored(root).process == second.process.pid


def test_a_renewal_whose_answer_was_lost_is_ones_own(
    on_conditional_s3: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEWED_EVERY", 0.1)
    root = f"s3://{BUCKET}/{uuid4().hex}"
    with writing(root):
        held = next(iter(lease._leases))
        later = replace(held._writer, renewals=1000)
        # As a renewal that arrives although all its answers are lost.
        assert until(
            lambda: storage.replace_if(RunLayout(root).lease, later.content(), held._version), 10
        )
        assert until(lambda: stored(root).renewals != 1000, 10)
        lease.check()
    assert stored(root).released


def test_one_waits_for_the_other(root: str) -> None:
    with processes(2) as (first, second):
        assert first.takes(root) == "won"
        second.begin(root, wait=True)
        said = second.said()
        first.tell()
        assert first.said() == "released"
        assert second.said() == "won"
    who = f"written by host .*, process {first.process.pid}, since .*Z"
    assert re.fullmatch(f"waiting for {re.escape(root)}: {who}", said)


def test_within_a_block_it_is_held_already_but_not_by_another_thread(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "run")
    found: list[BaseException] = []

    def other() -> None:
        try:
            with writing(str(tmp_path / "run")):
                pass
        except Held as error:
            found.append(error)

    with writing(str(tmp_path / "run")):
        with writing(str(tmp_path / "link") + "/"):
            pass
        assert stored(str(tmp_path / "run")).process == os.getpid()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(found) == 1


def test_what_is_kept_is_held_until_the_end(tmp_path: Path) -> None:
    with lease.kept():
        with writing(str(tmp_path)):
            pass
        assert writer_of(str(tmp_path))
    assert writer_of(str(tmp_path)) is None


def test_a_fork_does_not_release_the_lease(tmp_path: Path) -> None:
    with writing(str(tmp_path)):
        child = os.fork()
        if not child:
            with suppress(BaseException):
                for held in tuple(lease._leases):
                    held.release()
            os._exit(0)
        os.waitpid(child, 0)
        assert writer_of(str(tmp_path))


def test_where_nothing_may_be_written_there_is_no_lease(on_conditional_s3: FaultProxy) -> None:
    on_conditional_s3.behave(policy=read_only)
    refused = pytest.raises(PermissionError, match="was refused")
    with refused, writing(f"s3://{BUCKET}/{uuid4().hex}"):
        pass


def test_a_lease_of_a_store_that_ignores_conditions_is_advisory(on_s3: FaultProxy) -> None:
    root = f"s3://runs/{uuid4().hex}"
    with processes(2) as both:
        assert both[0].takes(root) == "won"
        assert str(writer_of(root)).endswith(
            " s ago (advisory: this store ignores conditional writes)"
        )
        assert "is being written by" in both[1].takes(root)
        both[0].tell()
        assert both[0].said() == "released"
        assert both[1].takes(root) == "won"


def test_a_unit_that_fails_without_the_lease_ends_the_run(tmp_path: Path) -> None:
    with writing(str(tmp_path)):
        next(iter(lease._leases))._is_lost = True
        with pytest.raises(UserError, match="was taken over"):
            scheduling._fail(None, ("a", "b"), ValueError())  # type: ignore[arg-type]


@pytest.fixture
def photos(tmp_path: Path, scenes: Path) -> Path:
    """A folder of six photos."""
    (tmp_path / "photos").mkdir()
    for path in sorted(scenes.iterdir())[:6]:
        shutil.copy(path, tmp_path / "photos")
    return tmp_path / "photos"


def label(photos: Path, out: object, classes: str = "cat,dog") -> list[str]:
    options = ["--classes", classes, "--model", "sparc-tiny", "--out", str(out)]
    return [str(COMMAND), "label", str(photos), *options]


@pytest.mark.slow
def test_two_labels_at_once_do_not_mix(photos: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    commands = [label(photos, out, classes) for classes in ("cat,dog", "car,sofa,pizza")]
    with ExitStack() as stack:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        running = [stack.enter_context(subprocess.Popen(each, **pipes)) for each in commands]  # type: ignore[call-overload]
        said = [each.communicate(timeout=120) for each in running]
    codes = [each.returncode for each in running]
    assert sorted(codes) == [0, 2], said
    winner, refusal = running[codes.index(0)], said[codes.index(2)][1]
    # Who comes when all is done is told that this is another run.
    assert f"process {winner.pid}, since 20" in refusal or "holds a run with another" in refusal
    assert refusal.count("\n") == 1
    lines = storage.read_lines(f"{out}/labels.csv")[1:]
    expected = [{"cat", "dog"}, {"car", "sofa", "pizza"}][codes.index(0)]
    assert len(lines) == 6 * len(expected)
    assert {line.split(",")[1] for line in lines} == expected
    assert writer_of(out) is None


@pytest.mark.parametrize(
    "command",
    [
        ["run", "{config}"],
        ["label", "{photos}", "--classes", "cat", "--model", "sparc-tiny", "--out", "{run}"],
        ["apply", "{run}", "{photos}", "--out", "{run}"],
        ["decide", "{run}", "--threshold", "0.3"],
        ["report", "{run}"],
        ["experiment", "rank-fusion", "--run", "{run}"],
        ["demo", "--out", "{run}", "--images", "4"],
        ["simulate", "--out", "{run}", "--images", "20"],
    ],
    ids=lambda command: command[0],
)
def test_each_command_that_writes_says_who_is_first(
    finished: Path, photos: Path, command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    from sparc_dist.cli import main

    run = finished / "run"
    storage.create(RunLayout(str(run)).lease, elsewhere().content())
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    places = {"run": run, "config": finished / "config.yaml", "photos": photos}
    assert main([part.format(**places) for part in command]) == 2
    said = capfd.readouterr().err
    assert re.fullmatch(
        f"sparc-dist: {run} is being written by host far, process 17, since .*Z, renewed . s ago; "
        "try again when it has ended, or wait for that with --wait.\n",
        said,
    )
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_readers_are_not_blocked(
    finished: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from sparc_dist.cli import main

    run = str(finished / "run")
    storage.create(RunLayout(run).lease, elsewhere().content())
    assert main(["status", run]) == 0
    assert "\nBeing written by host far, process 17, since 20" in capfd.readouterr().out
    assert main(["ask", run, "--count", "3", "--out", str(tmp_path / "answers.csv")]) == 0
    assert main(["export", run, "--format", "csv", "--out", str(tmp_path / "out")]) == 0
    assert not open_run(run).failures
    assert stored(run).host == "far"


def test_wait_runs_when_the_other_has_ended(finished: Path) -> None:
    run = str(finished / "run")
    with processes(1) as (other,):
        assert other.takes(run) == "won"
        waiting = subprocess.Popen(
            [COMMAND, "decide", run, "--threshold", "0.3", "--wait"],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert waiting.stderr is not None
        assert f"process {other.process.pid}" in waiting.stderr.readline()
        other.tell()
        assert other.said() == "released"
        assert waiting.wait(60) == 0
        waiting.communicate()


@pytest.mark.slow
def test_a_run_that_was_killed_is_resumed_at_once(photos: Path, tmp_path: Path) -> None:
    out, pipe = tmp_path / "out", subprocess.DEVNULL
    with subprocess.Popen(label(photos, out), stdout=pipe, stderr=pipe) as running:
        assert until((out / "run.json").exists, 60)
        running.kill()
    assert (out / "lease.json").exists()
    done = sparc_dist(*label(photos, out)[1:])
    assert done.returncode == 0, done.stderr
    assert not (out / "lease.json").exists()


def test_the_interface_for_python_has_its_own_words(photos: Path, tmp_path: Path) -> None:
    storage.create(RunLayout(str(tmp_path / "out")).lease, elsewhere().content())
    with pytest.raises(UserError, match=r"try again when it has ended\.$"):
        api.label(photos, ["cat"], "sparc-tiny", out=tmp_path / "out")
    config = {
        "output": str(tmp_path / "out"),
        "datasets": [{"name": "a", "kind": "folder", "images": str(photos), "classes": ["cat"]}],
        "backbones": [{"name": "tiny", "model": "sparc-tiny"}],
    }
    with pytest.raises(UserError, match=r"or wait for that with wait=True\.$"):
        api.run(config)
    (tmp_path / "out" / "lease.json").unlink()
    assert not api.run(config, wait=True).failures


def test_wrong_input_leaves_no_lease(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError):
        api.label(photos, ["cat"], "no-such-model", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_lease_is_a_file_of_the_run(finished: Path) -> None:
    names = ["run.json", "lease.json", "photo.jpg"]
    assert names_of_run(str(finished / "run"), names) == {"run.json", "lease.json"}
    assert json.loads(Writer.here().content())["process"] == os.getpid()
