"""sparc-dist prompts."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sparc_dist.cli.options import add_common, new_command

TEXT = """\
Builds the prompt bank of every data set of CONFIG, writes it to the run's DATASET/prompts.parquet
and prints how many background classes and prompts of each kind and origin there are, and how many
prompts mention each class.
No image is read. A model is loaded only to find the nearest partners of each class, if it is not
paired with all others (prompts.pairs_per_class).
"""


def add_parser(group: Any) -> None:
    """Adds the command."""
    parser = new_command(group, "prompts", prompts, "build and show the prompts", TEXT)
    add_common(parser, "config")
    parser.add_argument(
        "--show", action="store_true", help="print background classes and compound prompts"
    )


def prompts(options: Namespace) -> int:
    """Builds the prompt banks of a config."""
    from functools import partial

    from sparc_dist import storage
    from sparc_dist.backbones import embed_names, vocabulary_for
    from sparc_dist.config import find_config, load_config
    from sparc_dist.datasets import dataset_bank
    from sparc_dist.prompts import summary
    from sparc_dist.runs import RunLayout

    config = load_config(find_config(options.config))
    vocabulary, embed = vocabulary_for(config.backbones), partial(embed_names, config.backbones)
    for dataset in config.datasets:
        layout = RunLayout(config.output).dataset(dataset.name)
        bank, notes = dataset_bank(dataset, layout, vocabulary, embed)
        written = f"written to {layout.prompts}"
        if storage.read_if_exists(layout.marker) is not None:
            written = f"not written: {layout.prompts} belongs to a run that has begun"
        else:
            storage.write_table(layout.prompts, bank.to_table())
        print(f"{dataset.name}\n{summary(bank)}")
        if options.show:
            print(f"background: {', '.join(bank.background) or 'none'}")
            print("\n".join(f"  {prompt.text}" for prompt in bank.compound))
        print("\n".join([*notes, written, ""]))
    return 0
