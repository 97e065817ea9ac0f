"""The bundled model: a tiny CLIP, trained on the demo's drawn scenes (``demo.train``)."""

from sparc_dist.backbones.tiny.model import (
    MODEL_NAME,
    WEIGHTS,
    load_tiny_model,
    new_model,
    register,
    save_tiny_model,
)
from sparc_dist.backbones.vocabulary import tiny_classes

#: The classes that the model was trained on.
CLASSES = tiny_classes()

__all__ = [
    "CLASSES",
    "MODEL_NAME",
    "WEIGHTS",
    "load_tiny_model",
    "new_model",
    "register",
    "save_tiny_model",
]
