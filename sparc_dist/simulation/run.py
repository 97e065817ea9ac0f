"""A simulated run: its inputs, the scores drawn from them, and the reduce."""

from __future__ import annotations

from sparc_dist.config import load_config
from sparc_dist.pipeline import configure_ray
from sparc_dist.runner import run
from sparc_dist.runs import Results, RunLayout, claim
from sparc_dist.runs.outcome import read_metrics
from sparc_dist.simulation.inputs import Settings, write_inputs


def simulate(out: str, settings: Settings, overwrite: bool = False) -> Results:
    """Does what is missing of a simulated run at ``out``: labels, scores, reduce."""
    config = load_config(write_inputs(out, settings, overwrite))
    layout = RunLayout(config.output)
    claim(layout, config, overwrite)
    (dataset,) = config.datasets
    units = [layout.dataset(dataset.name).unit(name) for name in settings.models]
    if all(read_metrics(unit) for unit in units):
        return run(config, phase="reduce")
    # Ray takes seconds to import; a finished run should not wait for it.
    configure_ray()
    from sparc_dist.simulation.drawing import draw_and_reduce

    return draw_and_reduce(config, settings)
