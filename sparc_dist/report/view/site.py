"""The site of a run: which address shows what."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import product
from secrets import token_urlsafe
from threading import Lock

from sparc_dist import storage
from sparc_dist.core import expected_f1
from sparc_dist.errors import UserError
from sparc_dist.report.labels import update_labels
from sparc_dist.report.view.pages import Bar, ReportPages, image_page, page, part
from sparc_dist.report.view.response import (
    Refusal,
    Response,
    not_found,
    original,
    own_file,
    report_file,
    see,
    small,
)
from sparc_dist.report.view.review import ANSWERS, ROUNDS, Outcome, Review
from sparc_dist.report.view.unit_view import MOST_FOUND, UnitView
from sparc_dist.runs import RunLayout, UnitKey, error_limits, lease, read_record
from sparc_dist.runs.answers import Session, read_answers
from sparc_dist.runs.refit import Rule, refit
from sparc_dist.runs.results import existing_units, read_metrics
from sparc_dist.runs.run import open_unit

#: Images on a page of a class, and of unreadable ones.
PAGE, ERRORS = 60, 200
Query = Mapping[str, str]


class Site:
    """A run as pages. key: a secret that forms send, for only our own pages know it.

    changing: held while something is written to the run.
    """

    def __init__(self, root: str) -> None:
        self.root, self.layout, self.key = root, RunLayout(root), token_urlsafe(24)
        config = read_record(self.layout)["config"]
        datasets, backbones = (
            [part["name"] for part in config[kind]] for kind in ("datasets", "backbones")
        )
        units = existing_units(self.layout, datasets, backbones)
        self.keys: list[UnitKey] = list(product(datasets, units))
        self.report = ReportPages(self.layout, datasets, units)
        self.place = storage.without_secrets(root)
        self.changing = Lock()
        self._views: dict[UnitKey, tuple[str, UnitView]] = {}
        self._sessions: dict[UnitKey, Session] = {}

    def get(self, names: Sequence[str], query: Query) -> Response:
        """Answers a request for a page, a picture or a file."""
        match names:
            case []:
                return self._home()
            case ["report"]:
                return see("/report/index.html")
            case ["report", *path]:
                return report_file(self.layout.report, path, lambda: self._bar_of(path))
            case ["favicon.ico"]:  # pages that name no icon make browsers ask for this one
                return own_file("icon.svg")
            case ["static", name]:
                return own_file(name)
            case ["search"]:
                return self._search(query.get("id", ""))
            case ["class", dataset, backbone, index]:
                view = self.view(dataset, backbone)
                return self._class(view, _class_index(view, index), query)
            case ["review", dataset, backbone, index]:
                view = self.view(dataset, backbone)
                return self._review(view, _class_index(view, index), _round(query))
            case ["errors", dataset, backbone]:
                return self._errors(self.view(dataset, backbone), query)
            case ["image", dataset, backbone]:
                return self._find(self.view(dataset, backbone), query.get("id", ""))
            case ["image" | "original" | "thumb" as kind, dataset, backbone, shard, row]:
                view = self.view(dataset, backbone, kind == "image")
                return self._image(kind, view, _integer(shard), _integer(row))
        raise not_found("There is no such page.")

    def post(self, names: Sequence[str], query: Query, form: Query) -> Response:
        """Takes an answer, takes one back, or uses them all."""
        match names:
            case ["review", dataset, backbone, index]:
                view, number = self.view(dataset, backbone), _round(query)
                place = _class_index(view, index)
                with self.changing:
                    if form.get("do") == "use":
                        self._use(view)
                    else:
                        session = self.session(view)
                        _answer(Review.of(view, place, number, session), session, form)
                return see(f"/review/{view.path}/{place}?round={number}")
        raise not_found("There is no such form.")

    def view(self, dataset: str, backbone: str, fresh: bool = True) -> UnitView:
        """Returns a unit; opens it again if its decisions or images have changed since.

        fresh: whether to look for changes
        """
        key = (dataset, backbone)
        if key not in self.keys:
            raise not_found("The run has no such unit.")
        known = self._views.get(key)
        if known is not None and not fresh:
            return known[1]
        unit = self.layout.dataset(dataset).unit(backbone)
        if known is not None and read_metrics(unit) is None:
            return known[1]  # being decided again
        contents = [storage.read_if_exists(url) for url in (unit.metrics, unit.decisions)]
        version = hashlib.sha256(b"\n".join(part or b"" for part in contents)).hexdigest()
        if known is None or known[0] != version:
            opened = UnitView(key, open_unit(self.root, *key))
            self._views[key] = known = (version, opened)
        return known[1]

    def session(self, view: UnitView) -> Session:
        """Returns the answers that this site writes about a unit."""
        return self._sessions.setdefault(view.key, Session(view.unit.unit.answers))

    def _home(self) -> Response:
        views, problems = self._all()
        return page("home", bar=Bar("/"), views=views, problems=problems, root=self.place)

    def _bar_of(self, names: Sequence[str]) -> bytes:
        """Returns the bar of a page of the report."""
        here = f"/report/{'/'.join(names)}"
        key = self.report.unit(names)
        try:
            view = None if key is None else self.view(*key)
        except UserError:  # the report has a unit that is being decided or was discarded
            view = None
        if view is None:
            return part("bar", bar=Bar(here))
        return part("bar", bar=self.report.bar(here, view, self.report.index(names, view)))

    def _all(self) -> tuple[list[UnitView], list[str]]:
        """Returns the finished units, and why others are not shown."""
        views, problems = [], []
        for key in self.keys:
            try:
                views.append(self.view(*key))
            except UserError as error:
                problems.append(str(error))
        return views, problems

    def _search(self, text: str) -> Response:
        # Units of one data set have the same images.
        sets = {view.key[0]: view for view in self._all()[0]} if text.strip() else {}
        found = [(view, *image) for view in sets.values() for image in view.find(text.strip())]
        more = len(found) >= MOST_FOUND
        return page("search", bar=Bar("/search"), text=text, found=found[:MOST_FOUND], more=more)

    def _class(self, view: UnitView, index: int, query: Query) -> Response:
        ranking, last_first = view.ranking(index), query.get("sort") == "lowest"
        order = ranking.order[::-1] if last_first else ranking.order
        number, pages = _page(query, len(order), PAGE)
        places = order[(number - 1) * PAGE : number * PAGE].tolist()
        present = int(ranking.present.sum())
        above = len(order) - present if last_first else present
        return page(
            "class",
            bar=self.report.bar(f"/class/{view.path}/{index}", view, index),
            view=view,
            index=index,
            name=view.unit.classes[index],
            standing=view.standings[index],
            f1=expected_f1(ranking.probability.astype("f8"), ranking.present),
            tiles=view.tiles(ranking, places),
            numbers=(number, pages, min(above // PAGE + 1, pages)),
            first=(number - 1) * PAGE + 1,
            counts=(len(order), present),
            sort="lowest" if last_first else "score",
        )

    def _errors(self, view: UnitView, query: Query) -> Response:
        number, pages = _page(query, len(view.errors), ERRORS)
        found = view.errors.slice((number - 1) * ERRORS, ERRORS).to_pylist()
        return page(
            "errors",
            bar=self.report.bar(f"/errors/{view.path}", view),
            view=view,
            found=found,
            numbers=(number, pages),
            limit=error_limits(read_record(self.layout)).get(view.key),
        )

    def _find(self, view: UnitView, image_id: str) -> Response:
        place = view.place(image_id)
        if place is None:
            raise not_found(f"{view.title} has no image with this id.")
        return see("/".join(("/image", view.path, *map(str, place))))

    def _image(self, kind: str, view: UnitView, shard: int, row: int) -> Response:
        images = view.images(shard)
        if row >= len(images.ids):
            raise not_found(f"Shard {shard} has {len(images.ids)} images.")
        if kind == "image":
            here = f"/image/{view.path}/{shard}/{row}"
            return image_page(view, shard, row, self.report.bar(here, view))
        return (original if kind == "original" else small)(images.uris[row])

    def _review(self, view: UnitView, index: int, number: int) -> Response:
        session = self.session(view)
        review, answers = Review.of(view, index, number, session), session.place()
        return page(
            "review",
            bar=self.report.bar(f"/review/{view.path}/{index}", view, index),
            view=view,
            index=index,
            review=review,
            rounds=ROUNDS,
            outcome=Outcome.of(view, index, review),
            key=self.key,
            named=len(self.keys) > 1,
            root=self.place,
            answers=answers,
            alone=answers == session.url,
        )

    def _use(self, view: UnitView) -> None:
        """Fits the decisions with all answers of the unit, as `sparc-dist decide --answers`."""
        with lease.writing(self.root):
            unit = open_unit(self.root, *view.key, deciding=True)
            refit(unit, Rule(answers=read_answers(self.session(view).place(), unit.classes)))
            update_labels(self.root, unit)


def _answer(review: Review, session: Session, form: Query) -> None:
    """Writes an answer of a person, or takes back the last one of this session."""
    image_id, word = form.get("image", ""), form.get("do")
    if word == "undo":
        if review.last is None:
            return
        image_id, word = review.last.image_id, ""
    elif word not in ANSWERS:
        word = None
    question = review.question(image_id)
    if question is None or word is None:
        raise Refusal(400, "The form does not answer a question of this review; reload the page.")
    session.write(question, word, review.rows.get(image_id))


def _integer(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise not_found("The address has something else where a number must be.")
    return int(text)


def _page(query: Query, count: int, size: int) -> tuple[int, int]:
    """Returns the number of the page that a query asks for, and how many there are."""
    number, pages = _integer(query.get("page", "1")), max(-(-count // size), 1)
    if not 1 <= number <= pages:
        raise not_found(f"There are {pages} pages.")
    return number, pages


def _class_index(view: UnitView, text: str) -> int:
    index = _integer(text)
    if index >= len(view.unit.classes):
        raise not_found(f"{view.title} has {len(view.unit.classes)} classes.")
    return index


def _round(query: Query) -> int:
    number = _integer(query.get("round", "0"))
    if number >= ROUNDS:
        raise not_found(f"There are {ROUNDS} rounds of questions.")
    return number
