"""A run from Python: draw scenes, score them, and read what the run left in storage.

    python examples/explore.py --scenes 200 --out runs/explore

Needs no weights, internet or GPU: the scenes are drawn here, and the model is the one in this
package. The cells (``# %%``) also run one by one in an editor or notebook. Run it again to see a
finished run open at once: only what is missing is done.
"""

# %% Imports
from __future__ import annotations

import argparse

import numpy as np

import sparc_dist
from sparc_dist.core import FUSIONS
from sparc_dist.demo.inputs import write_demo
from sparc_dist.runs.run import Run


# %% Run the pipeline: a config in, files below its `output` out
def run_demo(out: str, scenes: int) -> Run:
    """Draws scenes and runs SPARC on them, with a report; returns the run."""
    finished = sparc_dist.run(write_demo(out, scenes))
    for unit, reason in finished.failures.items():
        raise SystemExit(f"{unit} failed: {reason}")
    return finished


# %% Read the final scores: an Arrow table with a row per image
def top_classes(run: Run, top: int = 3, images: int = 5) -> dict[str, list[str]]:
    """Returns the ``top`` most likely classes of the first images, best first."""
    classes = run.unit().classes
    final = run.final(columns=["image_id", "sparc"])[:images]
    scores = np.array(final["sparc"].to_pylist())  # images x classes
    best = np.argsort(-scores, axis=1)[:, :top]
    ids = final["image_id"].to_pylist()
    return {
        image_id: [f"{classes[index]} {scores[row, index]:.2f}" for index in best[row]]
        for row, image_id in enumerate(ids)
    }


# %% Look at the results: labels of some images, and the mAP of each method
def show(run: Run) -> None:
    """Prints the most likely classes of some images, and the mAP of each method."""
    for image_id, names in top_classes(run).items():
        print(f"{image_id}: {', '.join(names)}")
    for (dataset, _), metrics in run.metrics.items():
        for method, kind in FUSIONS.items():
            value = metrics[method]["mAP"]
            shown = "no labels" if value is None else f"{value:.1f}"
            print(f"{dataset}, {kind.title}: mAP {shown}")
    print(f"The report is {run.root}/report/index.html")


# %% Do it. The guard is needed: scenes are drawn by processes that import this file again.
if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run SPARC on drawn scenes and read the results.")
    parser.add_argument("--scenes", type=int, default=200, help="how many to draw")
    parser.add_argument("--out", default="runs/explore", help="folder of the run")
    options, _ = parser.parse_known_args()  # a notebook has arguments of its own
    show(run_demo(options.out, options.scenes))
