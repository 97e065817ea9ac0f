#!/bin/sh
# First contact: what a new user does, with the time to the first line and to the answer of each
# step, beside a bare open_clip script. Needs no weights and no internet.
#
#   sh examples/first_contact.sh [FOLDER]
set -eu
work=${1:-$(mktemp -d)}
mkdir -p "$work/photos"
cd "$work"

python - <<'PYTHON'
from sparc_dist.demo.scenes import SPLITS, draw_scene

for seed in SPLITS["validation"][:12]:
    draw_scene(seed).image.save(f"photos/{seed}.jpg")
PYTHON

# Runs a command; prints the seconds to its first line and to its end, and its exit code.
step() {
    title=$1
    shift
    python - "$title" "$@" <<'PYTHON'
import subprocess
import sys
import time

title, *command = sys.argv[1:]
start = time.monotonic()
process = subprocess.Popen(
    command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
)
first = None
lines = []
for line in process.stdout:
    first = first or time.monotonic() - start
    lines.append(line.rstrip())
code = process.wait()
total = time.monotonic() - start
shown = next((line for line in lines if ".jpg: " in line), lines[-1] if lines else "")
print(f"{title:<28} {first or total:6.1f} s {total:6.1f} s  exit {code}  {shown[:70]}", flush=True)
PYTHON
}

photo=$(ls photos/*.jpg | head -1)
cat > bare.py <<'PYTHON'
# One image and three texts, as a script of a few lines would do it.
import sys

import torch
from PIL import Image

from sparc_dist.backbones import tiny

tiny.register()
model = tiny.load_tiny_model().eval()
pixels = torch.zeros(1, 3, 64, 64)
Image.open(sys.argv[1]).convert("RGB")
with torch.inference_mode():
    model.encode_image(pixels)
print("one forward pass")
PYTHON

echo "step                        first line  answer"
step "bare open_clip" python bare.py "$photo"
step "one photo" sparc-dist label "$photo" --classes "cat,dog,sofa" --model sparc-tiny --out one
step "the same again" sparc-dist label "$photo" --classes "cat,dog,sofa" --model sparc-tiny --out one
step "a folder" sparc-dist label photos --classes "cat,dog,sofa" --model sparc-tiny --out all
printf 'cat\n# a comment\nsofa\n' > classes.txt
step "classes from a file" sparc-dist label photos --classes classes.txt --model sparc-tiny --out file
step "a folder that is not there" sparc-dist label nowhere --classes cat --model sparc-tiny || true
step "a model that is not there" sparc-dist label photos --classes cat --model ViT-B-99 || true
step "status" sparc-dist status all
step "decide again" sparc-dist decide all --per-image 2
step "export" sparc-dist export all --format csv --out labels-wide.csv
step "help" sparc-dist label --help
