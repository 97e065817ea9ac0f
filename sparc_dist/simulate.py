"""A simulated run: its inputs, scores drawn from them, and the reduce."""

from __future__ import annotations

from sparc_dist import storage
from sparc_dist.config_file import load_config
from sparc_dist.layout import RunLayout
from sparc_dist.outcome import Outcome
from sparc_dist.record import claim
from sparc_dist.run import run
from sparc_dist.simulation_inputs import Settings, write_inputs


def simulate(out: str, settings: Settings, overwrite: bool = False) -> Outcome:
    """Do what is missing of a simulated run at ``out``: labels, scores, reduce."""
    config = load_config(write_inputs(out, settings, overwrite))
    layout = RunLayout(config.output)
    claim(layout, config, overwrite)
    (dataset,), (backbone,) = config.datasets, config.backbones
    unit = layout.dataset(dataset.name).unit(backbone.name)
    if storage.read_own_json(unit.metrics) is not None:
        return run(config, part="reduce")
    # Ray takes seconds to import; a finished run should not wait for it.
    from sparc_dist.pipeline.simulate import draw_and_reduce

    return draw_and_reduce(config, settings)
