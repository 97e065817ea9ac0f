"""sparc-dist export."""

from __future__ import annotations

from argparse import Namespace
from contextlib import suppress
from typing import Any

from sparc_dist.cli.options import add_common, add_unit, check_no_key, new_command, run_root
from sparc_dist.errors import UserError

#: Each format and what it writes.
FORMATS = {
    "csv": "a row per image, a column per class",
    "csv-long": "a row per image and class",
    "parquet": "a row per image, a column per class",
    "parquet-long": "a row per image and class",
    "fiftyone": "JSON for fiftyone.Dataset.from_json",
    "label-studio": "JSON tasks with predictions, to import into Label Studio",
    "label-studio-config": "the XML labelling config that these tasks fit",
    "hf": 'Parquet for datasets.load_dataset("parquet", data_files=…)',
}
LINES = "\n".join(f"  {name:<20} {text}" for name, text in FORMATS.items())

TEXT = f"""\
Writes the labels of a finished unit to one file: which classes each image contains, with their
probabilities. Images that could not be read are left out. The formats are:

{LINES}

examples:
  sparc-dist export runs/pets --format csv --out pets.csv
  sparc-dist export runs/pets --format hf --out s3://my-bucket/pets.parquet --overwrite
"""


def add_parser(group: Any) -> None:
    """Adds the command."""
    summary = "write the labels of a run for another tool"
    parser = new_command(group, "export", export, summary, TEXT)
    add_unit(parser)
    parser.add_argument("--format", required=True, metavar="F", choices=FORMATS, help="see above")
    parser.add_argument("--out", required=True, metavar="FILE", help="a file or a URL")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    add_common(parser, "--raw-csv")


def export(options: Namespace) -> int:
    """Writes the labels of a unit."""
    from sparc_dist import storage
    from sparc_dist.report.export import FORMATS as WRITERS
    from sparc_dist.runs.run import open_unit

    out, is_csv = options.out, options.format.startswith("csv")
    if options.raw_csv and not is_csv:
        raise UserError(f"--raw-csv has no meaning for --format {options.format}; leave it out.")
    check_no_key("--out", out)
    # A store that forbids listing refuses to tell of a missing file.
    with suppress(PermissionError):
        if not options.overwrite and storage.exists(out):
            raise UserError(f"--out {out} exists; choose another name, or add --overwrite.")
    unit = open_unit(run_root(options.run), options.dataset, options.backbone)
    WRITERS[options.format](unit, out, *([options.raw_csv] if is_csv else []))
    print(f"Wrote {out} ({options.format}, {unit.metrics['images']} images)")
    return 0
